"""Words to levels and back: every kernel does what the definition in levels.md says."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support import bounded
from unweight_codecs.bounded.float_words import values_of
from unweight_codecs.bounded.levels import (
    MAX_LEVEL,
    MAX_STEP,
    MIN_STEP,
    dequantise,
    escapes_of,
    quantise,
    squared_error,
)
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes, LevelForm

UseKernel = Callable[[str], None]
FORMS = [
    LevelForm(low_bits, limit)
    for low_bits, limit in ((0, 1), (0, 2), (0, 254), (0, 255), (1, 7), (3, 40), (7, 128), (8, 255))
]
COUNTS = (1, 7, 8, 9, 100, 1023, 1024, 1025, 3000)
TABLE = LevelForm(0, 5, np.array([-MAX_LEVEL, -3, 0, 7, MAX_LEVEL], np.int32))
# Odd sums of neighbours lie between two float32, even ones are met by some words.
LARGE = np.arange(MAX_LEVEL - 501, MAX_LEVEL + 1, 2, dtype=np.int32)
TABLES = [
    TABLE,
    LevelForm(0, 1, np.array([3], np.int32)),
    LevelForm(0, 254, np.arange(-127, 127, dtype=np.int32)),
    LevelForm(0, 251, LARGE - np.arange(251, dtype=np.int32) % 2),
]
dtypes = pytest.mark.parametrize("dtype", bounded.FLOATS)


def random_words(dtype: str, count: int, seed: int = 0) -> Bytes:
    """Return weights with some words that are anything at all."""
    rng = np.random.default_rng(seed)
    words = bounded.words_of(rng.normal(0, 1, count), dtype).reshape(count, -1).copy()
    anything = rng.random(count) < 0.2
    words[anything] = rng.integers(0, 256, (int(anything.sum()), words.shape[1]), np.uint8)
    return words.reshape(-1)


def all_words(dtype: str) -> Bytes:
    if dtype != "F32":
        return np.arange(1 << 16, dtype="<u2").view(np.uint8)
    high = np.arange(1 << 16, dtype="<u4") << np.uint32(16)
    words = high | np.random.default_rng(0).integers(0, 1 << 16, 1 << 16, np.uint32)
    return np.asarray(words.view(np.uint8))


def by_reference(use_kernel: UseKernel, kernel: str, call: Callable[[], object]) -> object:
    """Return what the reference gives, and go back to a kernel."""
    use_kernel("reference")
    found = call()
    use_kernel(kernel)
    return found


@pytest.mark.parametrize(
    "form", [*FORMS, *TABLES], ids=lambda form: f"{form.low_bits}-{form.limit}"
)
@dtypes
def test_quantise_is_that_of_the_reference(
    each_kernel: str, use_kernel: UseKernel, dtype: str, form: LevelForm
) -> None:
    rng = np.random.default_rng(1)
    words = [random_words(dtype, count) for count in COUNTS] + [all_words(dtype)]
    for chunk, step in product(words, (0.01, 1.0, 2.0**-23, MIN_STEP, MAX_STEP)):
        count = chunk.size // bounded.SIZES[dtype]
        kept = rng.random(count) < 0.1
        prediction = rng.normal(0, 1, count).astype(np.float32)
        for marks, guess in ((None, None), (kept, None), (None, prediction), (kept, prediction)):

            def call(
                chunk: Bytes = chunk,
                step: float = step,
                marks: NDArray[np.bool_] | None = marks,
                guess: NDArray[np.float32] | None = guess,
            ) -> list[bytes]:
                parts = quantise(chunk, dtype, marks, np.float32(step), form, guess)
                return [part.tobytes() for part in parts]

            assert call() == by_reference(use_kernel, each_kernel, call)


@dtypes
def test_words_go_to_the_nearest_level_and_ties_to_the_even_one(
    each_kernel: str, dtype: str
) -> None:
    form = LevelForm(2, 16)  # -32 to 31
    quarters = np.arange(-130, 126) / 4
    symbols, low = quantise(
        bounded.words_of(quarters, dtype), dtype, None, np.float32(1), form, None
    )
    levels = (symbols.astype(int) << 2 | low) - form.bias
    inside = (np.rint(quarters) >= -32) & (np.rint(quarters) <= 31)
    assert np.array_equal(levels[inside], np.rint(quarters)[inside])  # rint: ties to even
    assert np.all(symbols[~inside] == form.limit)


@dtypes
def test_what_is_no_number_or_off_the_grid_is_kept(each_kernel: str, dtype: str) -> None:
    words = bounded.with_specials(bounded.words_of(np.ones(64), dtype), dtype)
    symbols, _ = quantise(words, dtype, None, np.float32(0.5), LevelForm(0, 6), None)
    finite = np.isfinite(values_of(words, dtype))
    assert np.array_equal(symbols == 6, ~finite)
    symbols, _ = quantise(words, dtype, None, np.float32(0.1), LevelForm(0, 6), None)
    assert np.all(symbols == 6)


def restored(
    dtype: str,
    form: LevelForm,
    step: float,
    count: int,
    *,
    predicted: bool,
    short: int = 0,
) -> bytes:
    """Decode random symbols, with ``short`` bytes of escapes too few."""
    rng = np.random.default_rng(count)
    symbols = rng.integers(0, 256, count).astype(np.uint8)
    low = rng.integers(0, 1 << form.low_bits, count if form.low_bits else 0).astype(np.uint8)
    size = bounded.SIZES[dtype]
    number = int(np.count_nonzero(symbols >= form.limit)) * size
    escapes = rng.integers(0, 256, max(0, number - short)).astype(np.uint8)
    prediction = rng.normal(0, step, count).astype(np.float32) if predicted else None
    words = np.full(count * size, 0x5A, np.uint8)
    dequantise(symbols, low, escapes, np.float32(step), form, dtype, prediction, words)
    return words.tobytes()


@pytest.mark.parametrize("form", [*FORMS, TABLE], ids=lambda form: f"{form.low_bits}-{form.limit}")
@dtypes
def test_dequantise_is_that_of_the_reference(
    each_kernel: str, use_kernel: UseKernel, dtype: str, form: LevelForm
) -> None:
    steps = (0.01, 1 / 3, 900.0, 2**-24 / 3, 0.0, MIN_STEP, MAX_STEP)
    for count, step, predicted in product(COUNTS, steps, (False, True)):

        def call(count: int = count, step: float = step, predicted: bool = predicted) -> bytes:
            return restored(dtype, form, step, count, predicted=predicted)

        assert call() == by_reference(use_kernel, each_kernel, call), (count, step)


@dtypes
def test_values_are_rounded_once_per_operation(each_kernel: str, dtype: str) -> None:
    """A fused multiplication and addition would give other last bits."""
    rng = np.random.default_rng(0)
    form = LevelForm(8, 255)
    symbols, low = (rng.integers(0, limit, 4000).astype(np.uint8) for limit in (255, 256))
    prediction = rng.normal(0, 300, 4000).astype(np.float32)
    step = np.float32(1 / 3)
    words = np.zeros(4000 * bounded.SIZES[dtype], np.uint8)
    dequantise(symbols, low, np.zeros(0, np.uint8), step, form, dtype, prediction, words)
    levels = (symbols.astype(np.int32) << 8 | low) - form.bias
    products = (levels.astype(np.float64) * np.float64(step)).astype(np.float32)
    sums = (products.astype(np.float64) + prediction).astype(np.float32)
    fused = (levels.astype(np.float64) * np.float64(step) + prediction).astype(np.float32)
    assert np.any(sums != fused)
    assert words.tobytes() == bounded.words_of(sums, dtype).tobytes()


@pytest.mark.parametrize("short", [1, 2, 3, 4, 1000])
@dtypes
def test_another_number_of_escapes(each_kernel: str, dtype: str, short: int) -> None:
    with pytest.raises(IntegrityError, match="number of escapes"):
        restored(dtype, LevelForm(1, 100), 0.1, 3000, predicted=False, short=short)
    symbols, words = np.zeros(8, np.uint8), np.zeros(8 * bounded.SIZES[dtype], np.uint8)
    surplus, form = np.zeros(short, np.uint8), LevelForm(0, 4)
    with pytest.raises(IntegrityError, match="number of escapes"):
        dequantise(symbols, surplus[:0], surplus, np.float32(1), form, dtype, None, words)


@dtypes
def test_kept_words_come_back_bit_by_bit(each_kernel: str, dtype: str) -> None:
    words, form = all_words(dtype), LevelForm(4, 20)
    symbols, low = quantise(words, dtype, None, np.float32(0.03), form, None)
    decoded = np.zeros_like(words)
    escapes = escapes_of(words, symbols, form)
    dequantise(symbols, low, escapes, np.float32(0.03), form, dtype, None, decoded)
    before, after = (part.reshape(symbols.size, -1) for part in (words, decoded))
    kept = symbols == form.limit
    assert kept.any()
    assert not kept.all()
    assert np.array_equal(before[kept], after[kept])
    values = [values_of(part, dtype)[~kept].astype(np.float64) for part in (words, decoded)]
    rounding = 2**-6  # half a unit in the last place of BF16, at 4.8
    assert np.abs(values[0] - values[1]).max() <= 0.015 + rounding


@dtypes
def test_squared_errors(each_kernel: str, dtype: str) -> None:
    for count in COUNTS:
        rng = np.random.default_rng(count)
        original = bounded.words_of(rng.normal(0, 1, count), dtype)
        decoded = bounded.words_of(rng.normal(0, 1, count), dtype)
        decoded_size = bounded.SIZES[dtype]
        original[-decoded_size:] = decoded[-decoded_size:] = np.frombuffer(
            np.array(bounded.NOT_FINITE[dtype][2], f"<u{decoded_size}").tobytes(), np.uint8
        )
        before, after = (
            values_of(part, dtype)[:-1].astype(np.float64) for part in (original, decoded)
        )
        square, error, largest = squared_error(original, decoded, dtype)
        assert math.isclose(square, math.fsum(before**2), rel_tol=1e-12)
        assert math.isclose(error, math.fsum((after - before) ** 2), rel_tol=1e-12)
        assert largest == np.abs(after - before).max(initial=0)


@pytest.mark.parametrize("at", [0, 5, 1023, 1024, 2999])
@dtypes
def test_a_word_that_is_no_number_must_stay(each_kernel: str, dtype: str, at: int) -> None:
    words = bounded.words_of(bounded.normal((3000,), 0), dtype)
    for special in bounded.NOT_FINITE[dtype]:
        original, decoded = (words.view(f"<u{bounded.SIZES[dtype]}").copy() for _ in range(2))
        original[at] = decoded[at] = special
        squared_error(original.view(np.uint8), decoded.view(np.uint8), dtype)
        decoded[at] ^= 1
        with pytest.raises(IntegrityError, match="not finite"):
            squared_error(original.view(np.uint8), decoded.view(np.uint8), dtype)


@dtypes
def test_a_number_that_becomes_none_is_no_small_error(each_kernel: str, dtype: str) -> None:
    original = bounded.words_of(np.ones(20), dtype)
    for special in bounded.NOT_FINITE[dtype]:
        decoded = original.view(f"<u{bounded.SIZES[dtype]}").copy()
        decoded[7] = special
        square, error, largest = squared_error(original, decoded.view(np.uint8), dtype)
        assert square == 20
        assert not error <= square
        assert not largest <= square
