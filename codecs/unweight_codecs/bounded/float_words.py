"""Words of 16- and 32-bit floats as values, and back with correct rounding."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.tensor_spec import TensorSpec

FLOATS: Final = ("BF16", "F16", "F32")  # the dtypes that can be coded with an error

Values = NDArray[np.float32]


def may_change(spec: TensorSpec) -> bool:
    """Whether a tensor may be coded with an error: a matrix of floats, of more than one row."""
    return spec.dtype in FLOATS and len(spec.shape) > 1


def values_of(words: Bytes, dtype: str) -> Values:
    """Return the words of ``dtype`` as float32, exactly."""
    if dtype == "BF16":
        return (words.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "F16":
        return words.view("<f2").astype(np.float32)
    return words.view("<f4")


def words_of_values(values: Values, dtype: str) -> Bytes:
    """Round values, which are no NaN, to words of ``dtype``: to nearest, ties to even.

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
