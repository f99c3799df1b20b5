"""Float words as symbols and raw bits in C."""

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.native.binding import DECLINED, Binding, checked, room_for
from unweight_codecs.kernels.native.library import DECODER_ROOM, SPARE
from unweight_codecs.kernels.native.structures import SplitSpec
from unweight_codecs.kernels.operands import Bytes, FloatSplit, Frequencies, Split16, padded

_MAX_PLANES: Final = 8
_WRONG_ESCAPES: Final = "a chunk has another number of escapes than its symbols ask for"


class NativePlanes(Binding):
    """Words of lossless coding."""

    def split(self, words: Bytes, count: int, split: FloatSplit) -> tuple[Bytes, Bytes, Bytes]:
        """See ``Kernels.split``."""
        symbols = buffers.empty(padded(count))
        symbols[count:] = 0
        planes = buffers.empty(split.raw_bits // 8 * count).reshape(-1, count)
        top = buffers.empty(count if split.raw_bits % 8 else 0)
        spec = ctypes.byref(SplitSpec.of(split))
        self._library.uw_split(self._kernel, words, count, spec, symbols, planes, count, top)
        return symbols, planes, top

    def collect_escapes(self, words: Bytes, symbols: Bytes, count: int, split: FloatSplit) -> Bytes:
        """See ``Kernels.collect_escapes``."""
        out = buffers.empty(count * split.escape_bytes)
        spec = ctypes.byref(SplitSpec.of(split))
        used = self._library.uw_collect_escapes(words, symbols, count, spec, out)
        return out[: used * split.escape_bytes]

    def join(
        self,
        symbols: Bytes,
        planes: Sequence[Bytes],
        top: Bytes,
        count: int,
        split: FloatSplit,
        words: Bytes,
    ) -> None:
        """See ``Kernels.join``."""
        addresses = (ctypes.c_void_p * _MAX_PLANES)(*(plane.ctypes.data for plane in planes))
        spec = ctypes.byref(SplitSpec.of(split))
        self._library.uw_join(self._kernel, symbols, addresses, top, count, spec, words)

    def patch(
        self, symbols: Bytes, count: int, split: FloatSplit, escapes: Bytes, words: Bytes
    ) -> None:
        """See ``Kernels.patch``."""
        number, rest = divmod(escapes.size, split.escape_bytes)
        spec = ctypes.byref(SplitSpec.of(split))
        status = self._library.uw_patch(symbols, count, spec, escapes, number, words)
        if rest:
            raise IntegrityError(_WRONG_ESCAPES)
        checked(status, _WRONG_ESCAPES)

    def split16(
        self, words: Bytes, count: int, chunk_words: int, split: FloatSplit
    ) -> Split16 | None:
        """See ``Kernels.split16``."""
        symbols = buffers.empty(padded(count) + SPARE)
        low = buffers.empty((count if split.raw_bits >= 8 else 0) + SPARE)
        top_bytes = -(-count * (split.raw_bits % 8) // 8)
        top = buffers.empty(top_bytes + SPARE)
        escapes = buffers.empty(count + SPARE)
        counts = np.zeros(-(-count // chunk_words), np.uint64)
        used = self._library.uw_split16(
            *(self._kernel, words, count, chunk_words, ctypes.byref(SplitSpec.of(split))),
            *(symbols, low, top, escapes, counts),
        )
        if used == DECLINED:
            return None
        return Split16(
            symbols[:-SPARE], low[:-SPARE], top[:top_bytes], escapes[: checked(used)], counts
        )

    def decode16(
        self,
        coded: Bytes,
        chunks: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Bytes | None,
        split: FloatSplit,
        words: Bytes,
    ) -> bool:
        """See ``Kernels.decode16``."""
        tables = len(frequencies)
        room = room_for(tables, DECODER_ROOM)
        status = self._library.uw_decode16(
            *(self._kernel, coded, coded.size, chunks, len(chunks), frequencies, tables),
            *(contexts, 0 if contexts is None else contexts.size, room, room.size),
            *(ctypes.byref(SplitSpec.of(split)), words, words.size // 2),
        )
        return status != DECLINED and checked(status) == 0
