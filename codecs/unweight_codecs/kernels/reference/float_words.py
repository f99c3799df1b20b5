"""Words of 16- and 32-bit floats as values, and back with correct rounding."""

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels.operands import Bytes


def values_of(words: Bytes, dtype: str) -> NDArray[np.float32]:
    """Return the words of ``dtype`` (BF16, F16 or F32) as float32, exactly."""
    if dtype == "BF16":
        return (words.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "F16":
        return words.view("<f2").astype(np.float32)
    return words.view("<f4")


def words_of_values(values: NDArray[np.float32], dtype: str) -> Bytes:
    """Round values, which are not NaN, to words of ``dtype``: to nearest, ties to even.

    Values beyond the range of F16 become infinite.
    """
    if dtype == "BF16":
        bits = values.view(np.uint32)
        even = bits >> np.uint32(16) & np.uint32(1)
        return ((bits + (even + np.uint32(0x7FFF))) >> np.uint32(16)).astype("<u2").view(np.uint8)
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return values.astype("<f2").view(np.uint8)
    return values.astype("<f4").view(np.uint8)
