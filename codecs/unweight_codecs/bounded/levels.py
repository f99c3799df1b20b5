"""Words to levels and back (``specs/levels.md``); the arithmetic is in the kernels."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.float_words import Values, values_of, words_of_values
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import Bytes, LevelForm

# Steps between these keep products and sums of float32 normal and finite.
MIN_STEP: Final = 2.0**-100
MAX_STEP: Final = 2.0**100
MAX_LEVEL: Final = 1 << 23  # exact as float32


@dataclass(frozen=True, slots=True)
class QuantisedWords:
    """Words on a grid: ``symbols`` and ``low`` per word, and the bytes of the escaped words."""

    symbols: Bytes
    low: Bytes
    escapes: Bytes


def quantise(
    words: Bytes,
    dtype: str,
    escaped: NDArray[np.bool_] | None,
    step: np.float32,
    form: LevelForm,
    prediction: Values | None,
) -> tuple[Bytes, Bytes]:
    """Return symbols and low bits of words.

    Those that are marked ``escaped``, not finite or off the grid escape.
    """
    return kernels().quantise(words, dtype, escaped, step, form, prediction)


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
    kernels().dequantise(symbols, low, escapes, step, form, dtype, prediction, words)


def escapes_of(words: Bytes, symbols: Bytes, form: LevelForm) -> Bytes:
    """Return the bytes of the words whose symbols are escapes."""
    return words.reshape(symbols.size, -1)[symbols >= form.limit].reshape(-1)


def squared_error(original: Bytes, decoded: Bytes, dtype: str) -> tuple[float, float, float]:
    """Return sums of squares of the finite original and of the error, and the largest error.

    Raises IntegrityError for a word that is not finite and is decoded to another one.
    """
    return kernels().squared_error(original, decoded, dtype)


__all__ = [
    "MAX_LEVEL",
    "MAX_STEP",
    "MIN_STEP",
    "dequantise",
    "escapes_of",
    "quantise",
    "squared_error",
    "values_of",
    "words_of_values",
]
