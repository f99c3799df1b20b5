"""Comparing buffers: exact results under every schedule, and no step beyond a buffer."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.support.devices import Device
from tests.gpu.support.seeded import SEEDS, Seeded
from unweight_codecs.bounded.float_words import FLOATS, values_of
from unweight_codecs.bounded.levels import squared_error
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_gpu import kernels
from unweight_gpu.checking.buffer_comparison import BufferComparison

Bytes = NDArray[np.uint8]
SHARE = 64 << 10  # bytes that a thread block sums up
WORD = {"BF16": "<u2", "F16": "<u2", "F32": "<u4"}
INFINITY = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000}


@pytest.fixture(params=SEEDS)
def seeded(device: Device, request: pytest.FixtureRequest) -> Seeded:
    """Return the device with one of the seeds."""
    return Seeded(device, request.param)


@pytest.fixture
def unseeded(device: Device) -> Seeded:
    """Return the device with the first seed, for tests that are not about the order of threads."""
    return Seeded(device)


@pytest.fixture
def compare(seeded: Seeded) -> BufferComparison:
    """Return the kernels under test."""
    return BufferComparison(seeded)


def random_bytes(count: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def random_words(count: int, dtype: str, seed: int = 0) -> Bytes:
    """Words of any pattern of bits that is a finite number."""
    words = random_bytes(count * np.dtype(WORD[dtype]).itemsize, seed).view(WORD[dtype])
    words[(words & INFINITY[dtype]) == INFINITY[dtype]] = 1
    return words.view(np.uint8)


# ---- Comparison


@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 4096, 100_003])
def test_first_difference(seeded: Seeded, compare: BufferComparison, size: int) -> None:
    data = random_bytes(size)
    left = seeded.array(data)
    assert compare.first_difference(left, seeded.array(data)) is None
    for at in {0, size // 3, size // 2, size - 1}:
        for value in (0x01, 0x80):
            changed = data.copy()
            changed[at] ^= value
            changed[at + 1 :: 3] ^= 0xFF  # later ones do not matter
            assert compare.first_difference(left, seeded.array(changed)) == at


def test_first_difference_of_many_threads(seeded: Seeded, compare: BufferComparison) -> None:
    data = random_bytes((9 << 20) + 5)  # more than all threads of a launch take at once
    changed = data.copy()
    changed[(8 << 20) + 7 :] ^= 1
    left = seeded.array(data)
    assert compare.first_difference(left, seeded.array(changed)) == (8 << 20) + 7
    assert compare.first_difference(left, seeded.array(data)) is None


def test_nothing_behind_a_buffer_is_compared(seeded: Seeded, compare: BufferComparison) -> None:
    left, right = (seeded.array(np.full(64, value, np.uint8)) for value in (1, 2))
    for array in (left, right):
        array[:37] = 5
    assert compare.first_difference(left[:37], right[:37]) is None
    assert compare.first_difference(left[:38], right[:38]) == 37
    assert compare.first_difference(left[:0], right[:0]) is None


# ---- Errors


def in_order(terms: NDArray[np.float64], per_piece: int) -> float:
    """Sum one term per word in the order of the kernels."""
    threads, rounds = 256, 16
    terms = np.concatenate([terms, np.zeros(-len(terms) % (threads * rounds * per_piece))])
    pieces = terms.reshape(-1, rounds, threads, per_piece)
    sums = np.zeros((len(pieces), threads))
    for piece in range(rounds):
        for word in range(per_piece):
            sums += pieces[:, piece, :, word]
    partial = by_halves(sums)
    return float(by_halves(total_in_order(partial)[None])[0])


def total_in_order(partial: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = np.zeros(256)
    for row in np.concatenate([partial, np.zeros(-len(partial) % 256)]).reshape(-1, 256):
        sums += row
    return sums


def by_halves(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums[:, 0]


@pytest.mark.parametrize("size", [4, 12, 16, 20, 1000, SHARE, SHARE + 4, 3 * SHARE + 1236])
@pytest.mark.parametrize("dtype", FLOATS)
def test_squared_error(seeded: Seeded, compare: BufferComparison, dtype: str, size: int) -> None:
    count = size // np.dtype(WORD[dtype]).itemsize
    original, decoded = random_words(count, dtype), random_words(count, dtype, 1)
    found = compare.squared_error(seeded.array(original), seeded.array(decoded), dtype)
    before, after = (values_of(words, dtype).astype(np.float64) for words in (original, decoded))
    error = after - before
    per_piece = 16 // np.dtype(WORD[dtype]).itemsize
    expected = in_order(before * before, per_piece), in_order(error * error, per_piece)
    assert found == (*expected, float(np.abs(error).max()))
    assert found == pytest.approx(squared_error(original, decoded, dtype), rel=1e-12)


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_every_word(seeded: Seeded, compare: BufferComparison, dtype: str) -> None:
    words = np.arange(1 << 16, dtype="<u2")
    finite = (words & INFINITY[dtype]) != INFINITY[dtype]
    decoded = np.where(finite, words ^ 0x8001, words).view(np.uint8)
    original = words.view(np.uint8)
    found = compare.squared_error(seeded.array(original), seeded.array(decoded), dtype)
    assert found == pytest.approx(squared_error(original, decoded, dtype), rel=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_exponent(unseeded: Seeded, dtype: str) -> None:
    """A word alone in its buffer shows whether it became the right number."""
    compare = BufferComparison(unseeded)
    bits = np.dtype(WORD[dtype]).itemsize * 8
    ones = np.arange(1, bits - 1)
    words = np.concatenate([[0, 1 << bits - 1], 1 << ones, (1 << ones) - 1]).astype(WORD[dtype])
    words = words[(words & INFINITY[dtype]) != INFINITY[dtype]]
    for word in words:
        original, decoded = (np.array([w], WORD[dtype]).view(np.uint8) for w in (word, 0))
        expected = abs(float(values_of(original, dtype)[0]))
        found = compare.squared_error(unseeded.array(original), unseeded.array(decoded), dtype)
        assert found == (expected**2, expected**2, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_words_that_are_not_finite(seeded: Seeded, compare: BufferComparison, dtype: str) -> None:
    count = 3 * SHARE // 4
    original, decoded = random_words(count, dtype), random_words(count, dtype, 1)
    words, others = original.view(WORD[dtype]), decoded.view(WORD[dtype])
    sign = words.dtype.type(1 << words.itemsize * 8 - 1)
    infinity = words.dtype.type(INFINITY[dtype])
    for at, word in ((5, infinity), (count // 2, infinity | sign), (count - 1, infinity | 1)):
        words[at] = others[at] = word
    left = seeded.array(original)
    found = compare.squared_error(left, seeded.array(decoded), dtype)
    assert found == pytest.approx(squared_error(original, decoded, dtype), rel=1e-12)
    for at in (count - 1, count // 2, 5):  # from last to first: the first is named
        others[at] ^= sign
        with pytest.raises(IntegrityError, match=f"^weight {at} is not finite"):
            compare.squared_error(left, seeded.array(decoded), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_finite_words_that_became_others(
    seeded: Seeded, compare: BufferComparison, dtype: str
) -> None:
    original = random_words(1000, dtype)
    decoded = original.copy()
    left = seeded.array(original)
    decoded.view(WORD[dtype])[700] = INFINITY[dtype]
    found = compare.squared_error(left, seeded.array(decoded), dtype)
    assert found[1:] == (np.inf, np.inf)
    decoded.view(WORD[dtype])[300] = INFINITY[dtype] | 1
    found = compare.squared_error(left, seeded.array(decoded), dtype)
    assert np.isnan(found[1:]).all()
    assert np.isfinite(found[0])


def test_no_words(seeded: Seeded, compare: BufferComparison) -> None:
    none = seeded.array(np.zeros(0, np.uint8))
    assert compare.squared_error(none, none, "F32") == (0, 0, 0)


def test_total_of_many_partial_results(seeded: Seeded) -> None:
    random = np.random.default_rng(3)
    sums = random.random((1000, 2)) * 10.0 ** random.integers(-9, 9, (1000, 2))
    largest = random.random(1000)
    broken = random.integers(10**6, 10**12, 1000, np.uint64)
    partial = np.empty((1000, 4), np.uint64)
    partial[:, :2], partial[:, 2], partial[:, 3] = sums.view("u8"), largest.view("u8"), broken
    total = seeded.empty(32, np.uint8)
    kernel = seeded.load(kernels.source("comparison")).get_function("total_error")
    kernel((1,), (256,), (seeded.array(partial.view(np.uint8)), np.uint64(1000), total))
    found = seeded.to_host(total).view(np.uint64)
    expected = [by_halves(total_in_order(column)[None])[0] for column in sums.T]
    assert found[:3].view(np.float64).tolist() == [*expected, largest.max()]
    assert found[3] == broken.min()


# ---- What is refused before a launch


def test_buffers_that_cannot_be_compared(unseeded: Seeded) -> None:
    compare = BufferComparison(unseeded)
    data = unseeded.array(random_bytes(64))
    matrix = data.reshape(8, 8)
    cases: tuple[tuple[Any, Any, str], ...] = (
        (data, data[:48], "buffers of 64 and 48 bytes"),
        (data[1:33], data[:32], "the first buffer must begin at a multiple of 16 bytes"),
        (data[:32], data[8:40], "the second buffer must begin at a multiple of 16 bytes"),
        (matrix[:, :4], data[:32], "the first buffer must be contiguous"),
    )
    for left, right, message in cases:
        with pytest.raises(UsageError, match=message):
            compare.first_difference(left, right)
        with pytest.raises(UsageError, match=message):
            compare.squared_error(left, right, "BF16")


@pytest.mark.parametrize(
    ("size", "dtype", "message"),
    [
        (64, "F64", "the error of 'F64' words is not defined"),
        (64, "bf16", "one of BF16, F16, F32"),
        (63, "BF16", "63 bytes are not a whole number of BF16 words"),
        (62, "F32", "62 bytes are not a whole number of F32 words"),
    ],
)
def test_words_without_an_error(unseeded: Seeded, size: int, dtype: str, message: str) -> None:
    data = unseeded.array(random_bytes(size))
    with pytest.raises(UsageError, match=message):
        BufferComparison(unseeded).squared_error(data, data, dtype)
