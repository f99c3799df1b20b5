"""Sharing an error bound out among tensors."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweight.evaluation.sensitivity.allocation import SPREAD, ProfiledTensor, allocate

QUERY = ProfiledTensor("query", 1000, 0.01, 4.0)
VALUE = ProfiledTensor("value", 1000, 0.01, 64.0)
DOWN = ProfiledTensor("down", 4000, 0.04, 1.0)
UNUSED = ProfiledTensor("unused", 10_000, 0.5, 0.0)

# Whatever a sensitivity file may hold, and mostly what a model gives.
NUMBERS = st.one_of(
    st.just(0.0),
    st.floats(1e-12, 1e3),
    st.floats(0.0, allow_infinity=False),
    st.sampled_from([5e-324, 1e-300, 1e300, 1.7e308]),
)
SIZES = st.one_of(st.just(0), st.integers(1, 1 << 40), st.just(10**400))


def slope(tensor: ProfiledTensor, bound: float) -> float:
    """Return what the loss gains per weight for a relative change of the bound."""
    return tensor.mean_square * tensor.mean_squared_gradient * bound**2


def error_of(tensors: tuple[ProfiledTensor, ...], bounds: dict[str, float]) -> float:
    """Return the relative error of all tensors together; exact until the root of it is taken."""
    energies = [tensor.parameters * Fraction(tensor.mean_square) for tensor in tensors]
    errors = sum(
        energy * Fraction(bounds[tensor.name]) ** 2
        for tensor, energy in zip(tensors, energies, strict=True)
    )
    total = sum(energies)
    return math.sqrt(errors / total) if total else 0.0


def test_every_tensor_loses_equally_much_for_a_bit() -> None:
    tensors = (QUERY, VALUE, DOWN)
    bounds = allocate(tensors, 0.01)
    slopes = [slope(tensor, bounds[tensor.name]) for tensor in tensors]
    assert slopes == pytest.approx([slopes[0]] * 3)
    assert bounds["query"] == pytest.approx(4 * bounds["value"])


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("others", [(), (UNUSED,)])
def test_all_together_have_the_error_asked_for(
    epsilon: float, others: tuple[ProfiledTensor, ...]
) -> None:
    tensors = (QUERY, VALUE, DOWN, *others)
    assert error_of(tensors, allocate(tensors, epsilon)) == pytest.approx(epsilon, rel=1e-9)


def test_bounds_are_limited_and_the_others_make_up_for_it() -> None:
    extreme = ProfiledTensor("extreme", 1000, 0.01, 1e12)
    tensors = (QUERY, extreme, DOWN)
    bounds = allocate(tensors, 0.01)
    assert bounds["extreme"] == pytest.approx(0.01 / SPREAD)
    assert error_of(tensors, bounds) == pytest.approx(0.01, rel=1e-9)


def test_a_tensor_that_the_profile_says_nothing_about_gets_the_common_bound() -> None:
    bounds = allocate((QUERY, VALUE, UNUSED), 0.01)
    assert bounds["unused"] == 0.01
    assert bounds["value"] < 0.01 < bounds["query"]
    assert allocate((QUERY, UNUSED), 0.01)["query"] == pytest.approx(0.01)


def test_an_energy_beyond_a_float_has_no_bound_beyond_the_limit() -> None:
    huge = ProfiledTensor("huge", 1000, 1e308, 1.0)
    bounds = allocate((QUERY, huge, DOWN), 0.01)
    assert max(bounds.values()) <= 0.01 * SPREAD
    assert bounds["huge"] == pytest.approx(0.01)  # next to it, the others do not count


def test_nothing_to_go_by_gives_the_common_bound() -> None:
    assert allocate((), 0.01) == {}
    assert allocate((UNUSED, ProfiledTensor("zero", 5, 0.0, 1.0)), 0.01) == {
        "unused": 0.01,
        "zero": 0.01,
    }


@given(
    st.lists(st.tuples(SIZES, NUMBERS, NUMBERS), max_size=12),
    st.one_of(st.floats(1e-5, 1.0), st.floats(1e-300, 1.0)),
)
def test_whatever_the_profile_says_the_promise_is_kept(
    rows: list[tuple[int, float, float]], epsilon: float
) -> None:
    tensors = tuple(ProfiledTensor(str(number), *row) for number, row in enumerate(rows))
    bounds = allocate(tensors, epsilon)
    assert set(bounds) == {tensor.name for tensor in tensors}
    assert all(0 < bound <= min(1, SPREAD * epsilon) for bound in bounds.values())
    assert error_of(tensors, bounds) <= epsilon * (1 + 1e-9)
