"""The NumPy dtypes of tensors."""

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import FormatError, ResourceError, quoted
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.tensor_spec import TensorSpec, dtype_named

_OWN: Final[Mapping[str, str]] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "C64": "<c8",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
# Those that the package ml_dtypes adds, by its names.
_ADDED: Final[Mapping[str, str]] = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


def numpy_dtype(name: str) -> "np.dtype[Any]":
    """Return the NumPy dtype of a tensor's elements.

    Raises ResourceError where it takes the package ml_dtypes, which is not installed, FormatError
    for elements that NumPy has no dtype for.
    """
    if name in _OWN:
        return np.dtype(_OWN[name])
    if name in _ADDED:
        added: np.dtype[Any] = np.dtype(getattr(_ml_dtypes(name), _ADDED[name]))
        return added
    raise FormatError(f"NumPy has no dtype for {quoted(name)}")


def as_array(words: Bytes, spec: TensorSpec) -> NDArray[Any]:
    """Return the bytes of a tensor as an array of its dtype and shape, without a copy.

    Quantised blocks stay bytes: of shape (…, bytes of a row), as the package gguf gives them.
    Raises as ``numpy_dtype`` does.
    """
    dtype = dtype_named(spec.dtype)
    if not dtype.block_bytes:
        return words.view(numpy_dtype(spec.dtype)).reshape(spec.shape)
    *outer, row = spec.shape or (1,)
    return words.reshape(*outer, row // dtype.block_elements * dtype.block_bytes)


@functools.cache
def _ml_dtypes(name: str) -> ModuleType:
    try:
        import ml_dtypes
    except ImportError as error:
        raise ResourceError(
            f"{name} in NumPy needs the package ml_dtypes",
            hint="pip install 'unweight[numpy-dtypes]'",
        ) from error
    return ml_dtypes
