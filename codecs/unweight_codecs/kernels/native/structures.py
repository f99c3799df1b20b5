"""Arguments of the C functions: structures of ``src/unweight.h``, and pointers to arrays."""

import ctypes
from typing import Self

import numpy as np

from unweight_codecs.kernels.operands import FloatSplit


class ArrayPointer:
    """The type of arguments that are pointers: takes an array, None, or what ``ctypes`` takes."""

    @classmethod
    def from_param(cls, value: object) -> object:
        """Return what ``ctypes`` passes on."""
        if isinstance(value, np.ndarray):
            return ctypes.c_void_p(value.ctypes.data)
        return value


class SplitSpec(ctypes.Structure):
    """Mirrors uw_split_spec."""

    _fields_ = (
        ("word_bytes", ctypes.c_uint32),
        ("exponent_bits", ctypes.c_uint32),
        ("mantissa_bits", ctypes.c_uint32),
        ("top_bits", ctypes.c_uint32),
        ("base", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
    )

    @classmethod
    def of(cls, split: FloatSplit) -> Self:
        """Return a split as the kernels take it."""
        return cls(
            split.word_bytes,
            split.exponent_bits,
            split.mantissa_bits,
            split.top_bits,
            split.base,
            split.window,
        )


class Levels(ctypes.Structure):
    """Mirrors uw_levels."""

    _fields_ = (
        ("dtype", ctypes.c_uint32),
        ("low_bits", ctypes.c_uint32),
        ("limit", ctypes.c_uint32),
        ("bias", ctypes.c_int32),
        ("table", ctypes.c_void_p),
    )


class Factors(ctypes.Structure):
    """Mirrors uw_factors."""

    _fields_ = (
        ("columns", ctypes.c_uint64),
        ("height", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("rank", ctypes.c_uint32),
        ("scale", ctypes.c_float),
        ("weights", ctypes.c_void_p),
        ("left", ctypes.c_void_p),
        ("right", ctypes.c_void_p),
    )
