"""Binding of the C kernels of the error-bounded mode."""

import ctypes
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.library import SLOTS_BYTES, pointer
from unweight_codecs.kernels.operands import (
    ALPHABET,
    SEGMENT,
    Bytes,
    Frequencies,
    LevelForm,
    LowRank,
    padded,
)

_CODES: Final = {"BF16": 0, "F16": 1, "F32": 2}  # as src/unweight.h numbers them
_BYTES: Final = {"BF16": 2, "F16": 2, "F32": 4}
_DAMAGED: Final = "a chunk has another number of escapes than its symbols ask for"

# Mirrors uw_level_chunk of src/unweight.h.
LEVEL_CHUNK = np.dtype(
    [
        ("symbol", SEGMENT),
        ("low", "<u8"),
        ("kept", "<u8"),
        ("kept_count", "<u4"),
        ("step", "<f4"),
    ]
)


class _Levels(ctypes.Structure):
    """Mirrors uw_levels of src/unweight.h."""

    _fields_ = (
        ("dtype", ctypes.c_uint32),
        ("low_bits", ctypes.c_uint32),
        ("limit", ctypes.c_uint32),
        ("bias", ctypes.c_int32),
        ("table", ctypes.c_void_p),
    )


class _Factors(ctypes.Structure):
    """Mirrors uw_factors of src/unweight.h."""

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


class NativeLevels:
    """Words to levels and back. ``quantise.levels`` has the definitions."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def quantise(
        self,
        words: Bytes,
        dtype: str,
        kept: NDArray[np.bool_] | None,
        step: np.float32,
        form: LevelForm,
        prediction: NDArray[np.float32] | None,
    ) -> tuple[Bytes, Bytes]:
        """Do what ``quantise.levels.quantise`` does."""
        count = words.size // _BYTES[dtype]
        symbols = buffers.empty(count)
        if form.table is not None:
            middles = _rounded_down(form.middles())
            self._library.uw_find_nearest(
                words.ctypes.data, count, pointer(kept), ctypes.byref(_levels(form, dtype, None)),
                float(step), pointer(prediction), middles.ctypes.data, symbols.ctypes.data,
            )  # fmt: skip
            return symbols, np.zeros(0, np.uint8)
        low = buffers.empty(count if form.low_bits else 0)
        self._library.uw_quantise(
            words.ctypes.data, count, pointer(kept), ctypes.byref(_levels(form, dtype, None)),
            float(step), pointer(prediction), symbols.ctypes.data, low.ctypes.data,
        )  # fmt: skip
        return symbols, low

    def squared_error(
        self, original: Bytes, decoded: Bytes, dtype: str
    ) -> tuple[float, float, float] | None:
        """Do what ``quantise.levels.squared_error`` does; None where it raises."""
        sums = np.zeros(3)
        status = self._library.uw_squared_error(
            original.ctypes.data, decoded.ctypes.data, original.size // _BYTES[dtype],
            _CODES[dtype], sums.ctypes.data,
        )  # fmt: skip
        square, error, largest = sums.tolist()
        return None if status else (square, error, largest)

    def dequantise(
        self,
        symbols: Bytes,
        low: Bytes,
        kept: Bytes,
        step: np.float32,
        form: LevelForm,
        dtype: str,
        prediction: NDArray[np.float32] | None,
        words: Bytes,
    ) -> None:
        """Do what ``quantise.levels.dequantise`` does."""
        table = _padded_table(form)
        size = _BYTES[dtype]
        status = self._library.uw_dequantise(
            symbols.ctypes.data, low.ctypes.data, symbols.size,
            ctypes.byref(_levels(form, dtype, table)), float(step), pointer(prediction),
            kept.ctypes.data, kept.size // size, words.ctypes.data,
        )  # fmt: skip
        if status or kept.size % size:
            raise IntegrityError(_DAMAGED)

    def predict(
        self, factors: LowRank, first: int, count: int, columns: int
    ) -> NDArray[np.float32]:
        """Do what ``quantise.low_rank.prediction_of`` does."""
        weights, left, right = factors.weights, factors.left, factors.right
        mirrored = _Factors(
            columns, *factors.tile, weights.shape[2], float(factors.scale),
            weights.ctypes.data, left.ctypes.data, right.ctypes.data,
        )  # fmt: skip
        out = buffers.empty(4 * count).view(np.float32)
        self._library.uw_predict(ctypes.byref(mirrored), first, count, out.ctypes.data)
        return out

    def decode_levels(
        self,
        coded: Bytes,
        chunks: NDArray[np.void],
        frequencies: Frequencies,
        form: LevelForm,
        dtype: str,
        prediction: NDArray[np.float32] | None,
        words: Bytes,
    ) -> None:
        """Decode chunks (``LEVEL_CHUNK``), their symbols by rANS, their low bits raw, to words."""
        table = _padded_table(form)
        room = buffers.empty(len(frequencies) * SLOTS_BYTES)
        most = padded(int(chunks["symbol"]["count"].max(initial=0)))
        symbols = buffers.empty(2 * most)
        status = self._library.uw_decode_levels(
            coded.ctypes.data, chunks.ctypes.data, len(chunks), frequencies.ctypes.data,
            len(frequencies), room.ctypes.data, ctypes.byref(_levels(form, dtype, table)),
            pointer(prediction), most, symbols.ctypes.data, words.ctypes.data,
        )  # fmt: skip
        if status:
            raise IntegrityError("a coded chunk is damaged")


def _levels(form: LevelForm, dtype: str, table: NDArray[np.int32] | None) -> _Levels:
    return _Levels(_CODES[dtype], form.low_bits, form.limit, form.bias, pointer(table))


def _rounded_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 so that a float32 is above a value exactly where it is above the result."""
    nearest = values.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > values, below, nearest)


def _padded_table(form: LevelForm) -> NDArray[np.int32] | None:
    """Return the levels of a table for all symbols that damaged chunks may have."""
    if form.table is None:
        return None
    table = np.zeros(ALPHABET, np.int32)
    table[: form.limit] = form.table
    return table
