"""Other ways to make weights smaller: what they leave and what they take, computed otherwise."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.models import Tensor, gaussian, noise, write_model
from unweight.evaluation.compare.methods import METHODS, PRUNED, Method, int4_in_groups
from unweight.evaluation.model.matrices import take_inventory
from unweight_codecs.errors import FormatError

Weights = NDArray[np.float32]

BY_NAME = {method.name: method for method in METHODS}
ROWS, COLUMNS = 24, 96
BF16_BYTES = 2


@pytest.fixture(scope="module")
def weights() -> Weights:
    """Return a matrix of BF16 values with rows of different scales, a row of zeros and ties."""
    generator = np.random.default_rng(5)
    scales = 2.0 ** generator.uniform(-6, 0, (ROWS, 1))
    values = (generator.normal(0, 1, (ROWS, COLUMNS)) * scales).astype(np.float32)
    values = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    values[7] = 0
    values[9] = 0.25
    return values


def error(weights: Weights, restored: Weights) -> float:
    return float(np.linalg.norm(weights - restored) / np.linalg.norm(weights))


def rounded(values: list[float], largest: int, code: str) -> list[float]:
    """Round a group as its definition says, number by number, with a scale stored as ``code``."""
    (scale,) = struct.unpack(code, struct.pack(code, max(map(abs, values)) / largest))
    if not scale:
        return [0.0] * len(values)
    return [scale * max(-largest, min(largest, round(value / scale))) for value in values]


def test_int8_has_a_scale_per_row(weights: Weights) -> None:
    restored, nbytes = BY_NAME["INT8 per channel"].change(weights, BF16_BYTES)
    expected = [rounded(row, 127, "<f") for row in weights.tolist()]
    # Half-way cases may fall on either side in another precision.
    steps = np.abs(weights).max(axis=1, keepdims=True) / 127
    assert np.all(np.abs(restored - expected) <= steps * 1.001)
    assert np.mean(np.isclose(restored, expected, rtol=1e-6, atol=0)) > 0.99
    assert np.all(np.abs(restored - weights) <= steps * 0.501)
    assert nbytes == ROWS * COLUMNS + 4 * ROWS


def test_int4_has_a_scale_per_group(weights: Weights) -> None:
    restored, nbytes = BY_NAME["INT4 per 32"].change(weights, BF16_BYTES)
    groups = weights.reshape(-1, 32)
    expected = np.array([rounded(group, 7, "<e") for group in groups.tolist()])
    assert np.mean(np.isclose(restored.reshape(-1, 32), expected, rtol=1e-6, atol=0)) > 0.99
    for group in restored.reshape(-1, 32):
        assert len(np.unique(group)) <= 15
    assert nbytes == ROWS * COLUMNS // 2 + 2 * ROWS * COLUMNS // 32


def test_int4_bears_weights_at_both_ends_of_half_precision() -> None:
    weights = np.zeros((1, 64), np.float32)
    weights[0, 0], weights[0, 40] = 1e-9, 1e6
    restored, _ = int4_in_groups(weights, 4)
    assert np.isfinite(restored).all()
    assert restored[0, 0] == 0
    assert restored[0, 40] == 7 * 65504


@pytest.mark.parametrize(
    ("name", "kind", "block_bytes"),
    [
        ("Q8_0", gguf.GGMLQuantizationType.Q8_0, 34),
        ("Q4_0", gguf.GGMLQuantizationType.Q4_0, 18),
    ],
)
def test_the_types_of_ggml(
    name: str, kind: gguf.GGMLQuantizationType, block_bytes: int, weights: Weights
) -> None:
    restored, nbytes = BY_NAME[name].change(weights, BF16_BYTES)
    reference = gguf.dequantize(gguf.quantize(weights, kind), kind)
    assert error(weights, restored) == error(weights, reference) > 0
    assert np.array_equal(restored, reference)
    assert nbytes == ROWS * COLUMNS // 32 * block_bytes


@pytest.mark.parametrize("share", [20, 50])
@pytest.mark.parametrize("word_bytes", [2, 4])
def test_pruned_weights_are_the_smallest(share: int, word_bytes: int, weights: Weights) -> None:
    restored, nbytes = BY_NAME[f"{share} % of weights pruned"].change(weights, word_bytes)
    removed = round(weights.size * share / 100)
    order = np.argsort(np.abs(weights).reshape(-1), kind="stable")
    expected = weights.reshape(-1).copy()
    expected[order[:removed]] = 0
    assert np.array_equal(restored.reshape(-1), expected)
    assert nbytes == weights.size // 8 + (weights.size - removed) * word_bytes


def test_exactly_a_share_of_equal_weights_is_pruned() -> None:
    weights = np.full((3, 33), 0.5, np.float32)
    restored, nbytes = BY_NAME["50 % of weights pruned"].change(weights, 2)
    assert np.count_nonzero(restored) == 99 - round(49.5)
    assert nbytes == 13 + 2 * np.count_nonzero(restored)


@pytest.mark.parametrize("share", [20, 50])
def test_pruned_rows_are_those_of_the_least_norm(share: int, weights: Weights) -> None:
    restored, nbytes = BY_NAME[f"{share} % of rows pruned"].change(weights, BF16_BYTES)
    removed = round(ROWS * share / 100)
    norms = [sum(value * value for value in row) for row in weights.tolist()]
    gone = sorted(range(ROWS), key=norms.__getitem__)[:removed]
    assert 7 in gone
    expected = weights.copy()
    expected[gone] = 0
    assert np.array_equal(restored, expected)
    assert nbytes == ROWS // 8 + (ROWS - removed) * COLUMNS * BF16_BYTES


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_leaves_its_input_and_bears_a_matrix_of_zeros(
    method: Method, weights: Weights
) -> None:
    before = weights.copy()
    weights.flags.writeable = False
    restored, _ = method.change(weights, BF16_BYTES)
    assert np.array_equal(weights, before)
    assert restored.shape == weights.shape
    assert restored.dtype == np.float32
    zeros, _ = method.change(np.zeros((2, 32), np.float32), BF16_BYTES)
    assert not zeros.any()


def test_less_is_lost_with_more_bits_and_less_pruning(weights: Weights) -> None:
    errors = {
        method.name: error(weights, method.change(weights, BF16_BYTES)[0]) for method in METHODS
    }
    assert errors["Q8_0"] < errors["Q4_0"]
    assert errors["INT8 per channel"] < errors["INT4 per 32"]
    for what in ("weights", "rows"):
        assert errors[f"20 % of {what} pruned"] < errors[f"50 % of {what} pruned"]
    assert [method.kind for method in METHODS].count(PRUNED) == 4


def test_an_inventory_has_every_tensor_once(tmp_path: Path) -> None:
    tensors = {
        "matrix": gaussian("BF16", (4, 8), 1),
        "cube": gaussian("F32", (2, 3, 5), 2),
        "vector": gaussian("F32", (8,), 3),
        "row": gaussian("F32", (1, 8), 4),
        "integers": noise((4, 4), 5),
        "empty": Tensor("F32", (0, 4), b""),
    }
    first = write_model(tmp_path / "a.safetensors", tensors)
    second = write_model(tmp_path / "b.safetensors", {"half": gaussian("F32", (2, 2), 6)})
    found = take_inventory([first, second])
    assert found.file_bytes == first.stat().st_size + second.stat().st_size
    assert found.weights == 32 + 30 + 8 + 8 + 16 + 4
    total = sum(len(tensor.data) for tensor in tensors.values()) + 16
    assert found.matrix_bytes + found.other_bytes == total
    shapes = {matrix.name: matrix.read().shape for matrix in found.matrices}
    assert {"matrix", "cube", "half"} <= set(shapes)
    assert not {"vector", "integers", "empty"} & set(shapes)
    assert shapes["cube"] == (6, 5)
    words = {matrix.name: matrix.word_bytes for matrix in found.matrices}
    assert (words["matrix"], words["cube"]) == (2, 4)
    (cube,) = (matrix for matrix in found.matrices if matrix.name == "cube")
    assert cube.read().tobytes() == tensors["cube"].data


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    data = np.array([[1, np.inf], [2, 3]], "<f4").tobytes()
    file = write_model(tmp_path / "a.safetensors", {"bad": Tensor("F32", (2, 2), data)})
    (matrix,) = take_inventory([file]).matrices
    with pytest.raises(FormatError, match="'bad' holds weights that are not finite"):
        matrix.read()
