"""The floats that can be coded with an error: words, and their values."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels.reference.float_words import values_of, words_of_values
from unweight_codecs.tensor_spec import TensorSpec

FLOATS: Final = ("BF16", "F16", "F32")  # the dtypes that can be coded with an error

Values = NDArray[np.float32]


def may_change(spec: TensorSpec) -> bool:
    """Whether a tensor may be coded with an error: a matrix of floats, of more than one row."""
    return spec.dtype in FLOATS and len(spec.shape) > 1


__all__ = ["FLOATS", "Values", "may_change", "values_of", "words_of_values"]
