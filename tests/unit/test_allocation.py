"""Sharing an error bound out among tensors."""

import math

import pytest

from unweight_cli.evaluation.allocation import SPREAD, Tensor, allocate

QUERY = Tensor("query", 1000, 0.01, 4.0)
VALUE = Tensor("value", 1000, 0.01, 64.0)
DOWN = Tensor("down", 4000, 0.04, 1.0)


def slope(tensor: Tensor, bound: float) -> float:
    """Return what the loss gains per weight for a relative change of the bound."""
    return tensor.mean_square * tensor.mean_squared_gradient * bound**2


def error_of(tensors: tuple[Tensor, ...], bounds: dict[str, float]) -> float:
    energies = [tensor.parameters * tensor.mean_square for tensor in tensors]
    errors = sum(
        energy * bounds[tensor.name] ** 2 for tensor, energy in zip(tensors, energies, strict=True)
    )
    return math.sqrt(errors / sum(energies))


def test_every_tensor_loses_equally_much_for_a_bit() -> None:
    tensors = (QUERY, VALUE, DOWN)
    bounds = allocate(tensors, 0.01)
    slopes = [slope(tensor, bounds[tensor.name]) for tensor in tensors]
    assert slopes == pytest.approx([slopes[0]] * 3)
    assert bounds["query"] == pytest.approx(4 * bounds["value"])


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.05])
def test_all_together_have_the_error_asked_for(epsilon: float) -> None:
    tensors = (QUERY, VALUE, DOWN)
    assert error_of(tensors, allocate(tensors, epsilon)) == pytest.approx(epsilon, rel=1e-4)


def test_bounds_are_limited_and_the_others_make_up_for_it() -> None:
    extreme = Tensor("extreme", 1000, 0.01, 1e12)
    tensors = (QUERY, extreme, DOWN)
    bounds = allocate(tensors, 0.01)
    assert bounds["extreme"] >= 0.01 / SPREAD * 0.999
    assert max(bounds.values()) <= min(1.0, 0.01 * SPREAD)
    assert error_of(tensors, bounds) == pytest.approx(0.01, rel=1e-3)


def test_a_tensor_the_loss_does_not_depend_on_gets_the_largest_bound() -> None:
    unused = Tensor("unused", 10, 0.5, 0.0)
    bounds = allocate((QUERY, unused), 0.01)
    assert bounds["unused"] == pytest.approx(0.01 * SPREAD)
    assert bounds["query"] == pytest.approx(0.01)


def test_bounds_never_exceed_one() -> None:
    bounds = allocate((QUERY, VALUE, Tensor("unused", 10, 0.5, 0.0)), 0.9)
    assert max(bounds.values()) <= 1


def test_nothing_to_go_by_gives_no_bounds_but_the_largest() -> None:
    assert allocate((), 0.01) == {}
    assert allocate((Tensor("zero", 5, 0.0, 0.0),), 0.01) == {}
