"""Words to levels and back: the arithmetic of the error-bounded mode (``specs/levels.md``).

A word is decoded as the float32 product of its level and its chunk's step, to which the float32
prediction of the low-rank factors is added where there are some, rounded to the tensor's dtype.
Every operation rounds once, to nearest, so each decoder gives the same bits.
"""

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import ALPHABET, Bytes, LevelForm, LowRank
from unweight_codecs.kernels.reference.float_words import values_of, words_of_values

_NO_BYTES = np.zeros(0, np.uint8)


class LevelReference:
    """Computes in float32, whole chunks at a time."""

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
        values = values_of(words, dtype)
        stored = ~np.isfinite(values) if escaped is None else ~np.isfinite(values) | escaped
        with np.errstate(all="ignore"):
            scaled = (values if prediction is None else values - prediction) / step
        if form.table is not None:
            symbols = np.searchsorted(form.middles(), scaled).astype(np.uint8)
            symbols[stored] = form.limit
            return symbols, _NO_BYTES
        levels = np.rint(scaled) + np.float32(form.bias)
        stored |= ~((levels >= 0) & (levels < form.limit << form.low_bits))
        levels[stored] = 0
        whole = levels.astype(np.uint16)
        symbols = (whole >> np.uint16(form.low_bits)).astype(np.uint8)
        symbols[stored] = form.limit
        if not form.low_bits:
            return symbols, _NO_BYTES
        return symbols, (whole & np.uint16((1 << form.low_bits) - 1)).astype(np.uint8)

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
        if form.table is not None:
            # Damaged chunks may have any symbol above the limit.
            levels = np.append(form.table, np.zeros(ALPHABET - form.limit, np.int32))[symbols]
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

    def squared_error(
        self, original: Bytes, decoded: Bytes, dtype: str
    ) -> tuple[float, float, float]:
        """See ``Kernels.squared_error``."""
        with np.errstate(invalid="ignore"):  # signalling NaN
            before, after = (
                values_of(words, dtype).astype(np.float64) for words in (original, decoded)
            )
        finite = np.isfinite(before)
        if not finite.all():
            first, second = (
                words.reshape(before.size, -1)[~finite] for words in (original, decoded)
            )
            if not np.array_equal(first, second):
                raise IntegrityError("a weight that is not finite does not decode to itself")
            before, after = before[finite], after[finite]
        error = after - before
        largest = float(np.abs(error).max(initial=0.0))
        return float(np.square(before).sum()), float(np.square(error).sum()), largest

    def predict(
        self, factors: LowRank, first: int, count: int, columns: int
    ) -> NDArray[np.float32]:
        """See ``Kernels.predict``."""
        begin, end = first // columns, -(-(first + count) // columns)
        out = np.empty((end - begin, columns), np.float32)
        height, width = factors.tile
        for row in range(begin, end):
            for tile in range(-(-columns // width)):
                left = factors.left[row, tile].astype(np.int32)
                left *= factors.weights[row // height, tile]
                part = slice(tile * width, min((tile + 1) * width, columns))
                right = factors.right[row // height, :, part].astype(np.int32)
                out[row - begin, part] = (left @ right).astype(np.float32)
        out *= factors.scale
        skip = first - begin * columns
        return out.reshape(-1)[skip : skip + count]

    def decode_levels(
        self,
        coded: Bytes,
        chunks: NDArray[np.void],
        frequencies: NDArray[np.uint16],
        form: LevelForm,
        dtype: str,
        prediction: NDArray[np.float32] | None,
        words: Bytes,
    ) -> bool:
        """Decline: ``rans_decode``, ``unpack_bits`` and ``dequantise`` are the definition."""
        return False
