"""Words on levels in C: the error-bounded mode."""

import ctypes
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.native.binding import Binding, checked, room_for
from unweight_codecs.kernels.native.library import DECODER_ROOM
from unweight_codecs.kernels.native.structures import Factors, Levels
from unweight_codecs.kernels.operands import (
    ALPHABET,
    Bytes,
    Frequencies,
    LevelForm,
    LowRank,
    padded,
)

_CODES: Final = {"BF16": 0, "F16": 1, "F32": 2}  # as src/unweight.h numbers them
_BYTES: Final = {"BF16": 2, "F16": 2, "F32": 4}
_WRONG_ESCAPES: Final = "a chunk has another number of escapes than its symbols ask for"
_NO_BYTES: Final = np.zeros(0, np.uint8)


class NativeLevels(Binding):
    """Words to levels and back."""

    def quantise(
        self,
        words: Bytes,
        dtype: str,
        escaped: NDArray[np.bool_] | None,
        step: np.float32,
        form: LevelForm,
        prediction: NDArray[np.float32] | None,
    ) -> tuple[Bytes, Bytes]:
        """See ``Kernels.quantise``."""
        count = words.size // _BYTES[dtype]
        symbols = buffers.empty(count)
        given = (self._kernel, words, count, escaped)
        levels = ctypes.byref(_levels(form, dtype, None))
        if form.table is not None:
            middles = _rounded_down(form.middles())
            self._library.uw_find_nearest(*given, levels, float(step), prediction, middles, symbols)
            return symbols, _NO_BYTES
        low = buffers.empty(count if form.low_bits else 0)
        self._library.uw_quantise(*given, levels, float(step), prediction, symbols, low)
        return symbols, low

    def squared_error(
        self, original: Bytes, decoded: Bytes, dtype: str
    ) -> tuple[float, float, float]:
        """See ``Kernels.squared_error``."""
        sums, count = np.zeros(3), original.size // _BYTES[dtype]
        status = self._library.uw_squared_error(
            self._kernel, original, decoded, count, _CODES[dtype], sums
        )
        checked(status, "a weight that is not finite does not decode to itself")
        square, error, largest = sums.tolist()
        return square, error, largest

    def dequantise(
        self,
        symbols: Bytes,
        low: Bytes,
        escapes: Bytes,
        step: np.float32,
        form: LevelForm,
        dtype: str,
        prediction: NDArray[np.float32] | None,
        words: Bytes,
    ) -> None:
        """See ``Kernels.dequantise``."""
        table = _padded_table(form)
        number, rest = divmod(escapes.size, _BYTES[dtype])
        status = self._library.uw_dequantise(
            *(self._kernel, symbols, low, symbols.size),
            *(ctypes.byref(_levels(form, dtype, table)), float(step), prediction),
            *(escapes, number, words),
        )
        if rest:
            raise IntegrityError(_WRONG_ESCAPES)
        checked(status, _WRONG_ESCAPES)

    def predict(
        self, factors: LowRank, first: int, count: int, columns: int
    ) -> NDArray[np.float32]:
        """See ``Kernels.predict``."""
        weights, left, right = factors.weights, factors.left, factors.right
        mirrored = Factors(
            *(columns, *factors.tile, weights.shape[2], float(factors.scale)),
            *(weights.ctypes.data, left.ctypes.data, right.ctypes.data),
        )
        out = buffers.empty(4 * count).view(np.float32)
        self._library.uw_predict(self._kernel, ctypes.byref(mirrored), first, count, out)
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
    ) -> bool:
        """See ``Kernels.decode_levels``."""
        table, tables = _padded_table(form), len(frequencies)
        room = room_for(tables, DECODER_ROOM)
        symbols = buffers.empty(2 * padded(int(chunks["symbol"]["count"].max(initial=0))))
        status = self._library.uw_decode_levels(
            *(self._kernel, coded, coded.size, chunks, len(chunks), frequencies, tables),
            *(room, room.size, ctypes.byref(_levels(form, dtype, table)), prediction),
            *(symbols, symbols.size, words, words.size // _BYTES[dtype]),
        )
        checked(status)
        return True


def _levels(form: LevelForm, dtype: str, table: NDArray[np.int32] | None) -> Levels:
    address = None if table is None else table.ctypes.data
    return Levels(_CODES[dtype], form.low_bits, form.limit, form.bias, address)


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
