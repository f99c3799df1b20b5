"""Words to levels and back: the arithmetic of the error-bounded mode (``specs/levels.md``).

A word is decoded as the float32 product of its level and its chunk's step, to which the float32
prediction of the low-rank factors is added where there are some, rounded to the tensor's dtype.
Every operation rounds once, to nearest, so each decoder gives the same bits.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.float_words import Values, values_of, words_of_values
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import Bytes, LevelForm

# Steps between these keep products and sums of float32 normal and finite.
SMALLEST_STEP: Final = 2.0**-100
LARGEST_STEP: Final = 2.0**100
_NOT_FINITE: Final = "a weight that is not finite does not decode to itself"
LARGEST_LEVEL: Final = 1 << 23  # exact as float32


@dataclass(frozen=True, slots=True)
class Quantised:
    """Words on a grid: ``symbols`` and ``low`` per word, and the bytes of the escaped words."""

    symbols: Bytes
    low: Bytes
    escapes: Bytes


def quantise(
    words: Bytes,
    dtype: str,
    kept: NDArray[np.bool_] | None,
    step: np.float32,
    form: LevelForm,
    prediction: Values | None,
) -> tuple[Bytes, Bytes]:
    """Return symbols and low bits of words.

    Those that are ``kept``, no numbers or off the grid escape.
    """
    active = kernels()
    if isinstance(active, NativeKernels):
        return active.quantise(words, dtype, kept, step, form, prediction)
    values = values_of(words, dtype)
    escaped = ~np.isfinite(values) if kept is None else ~np.isfinite(values) | kept
    with np.errstate(all="ignore"):
        scaled = (values if prediction is None else values - prediction) / step
    if form.table is not None:
        symbols = np.searchsorted(form.middles(), scaled).astype(np.uint8)
        symbols[escaped] = form.limit
        return symbols, np.zeros(0, np.uint8)
    levels = np.rint(scaled) + np.float32(form.bias)
    escaped |= ~((levels >= 0) & (levels < form.limit << form.low_bits))
    levels[escaped] = 0
    whole = levels.astype(np.uint16)
    symbols = (whole >> np.uint16(form.low_bits)).astype(np.uint8)
    symbols[escaped] = form.limit
    if not form.low_bits:
        return symbols, np.zeros(0, np.uint8)
    return symbols, (whole & np.uint16((1 << form.low_bits) - 1)).astype(np.uint8)


def dequantise(
    symbols: Bytes,
    low: Bytes,
    escapes: Bytes,
    step: np.float32,
    form: LevelForm,
    dtype: str,
    prediction: Values | None,
    words: Bytes,
) -> None:
    """Turn symbols and low bits of a chunk into ``words`` of ``dtype``.

    Raises IntegrityError unless there are as many escapes as the symbols ask for.
    """
    active = kernels()
    if isinstance(active, NativeKernels):
        active.dequantise(symbols, low, escapes, step, form, dtype, prediction, words)
        return
    if form.table is not None:
        levels = np.append(form.table, np.zeros(256 - form.limit, np.int32))[symbols]
    else:
        levels = symbols.astype(np.int32) << form.low_bits
        if form.low_bits:
            levels |= low
        levels -= form.bias
    values = levels.astype(np.float32) * step
    if prediction is not None:
        values += prediction
    words[:] = words_of_values(values, dtype)
    escaped = symbols >= form.limit
    rows = words.reshape(symbols.size, -1)
    if int(escaped.sum()) * rows.shape[1] != escapes.size:
        raise IntegrityError("a chunk has another number of escapes than its symbols ask for")
    rows[escaped] = escapes.reshape(-1, rows.shape[1])


def escapes_of(words: Bytes, symbols: Bytes, form: LevelForm) -> Bytes:
    """Return the bytes of the words whose symbols are escapes."""
    return words.reshape(symbols.size, -1)[symbols >= form.limit].reshape(-1)


def squared_error(original: Bytes, decoded: Bytes, dtype: str) -> tuple[float, float, float]:
    """Return sums of squares of the finite original and of the error, and the largest error.

    Raises IntegrityError for a word that is not finite and is decoded to another one.
    """
    active = kernels()
    if isinstance(active, NativeKernels):
        found = active.squared_error(original, decoded, dtype)
        if found is None:
            raise IntegrityError(_NOT_FINITE)
        return found
    with np.errstate(invalid="ignore"):  # signalling NaN
        before, after = (
            values_of(words, dtype).astype(np.float64) for words in (original, decoded)
        )
    finite = np.isfinite(before)
    if not finite.all():
        first, second = (words.reshape(before.size, -1)[~finite] for words in (original, decoded))
        if not np.array_equal(first, second):
            raise IntegrityError(_NOT_FINITE)
        before, after = before[finite], after[finite]
    error = after - before
    largest = float(np.abs(error).max(initial=0.0))
    return float(np.square(before).sum()), float(np.square(error).sum()), largest


__all__ = [
    "LARGEST_LEVEL",
    "LARGEST_STEP",
    "SMALLEST_STEP",
    "dequantise",
    "escapes_of",
    "quantise",
    "squared_error",
    "values_of",
    "words_of_values",
]
