"""Counting, frequency tables and rANS in C."""

import ctypes

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import UnweightError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.native.binding import Binding, checked, room_for
from unweight_codecs.kernels.native.library import DECODER_ROOM, ENCODER_ROOM, HISTOGRAM_COUNTERS
from unweight_codecs.kernels.operands import (
    ALPHABET,
    LANES,
    MAX_TABLE_BYTES,
    Bytes,
    Contexts,
    Frequencies,
    padded,
)


class NativeCoding(Binding):
    """What lies between words and coded bytes."""

    def histogram(
        self, words: NDArray[np.generic], shift: int, bits: int, stretch: int = 0
    ) -> NDArray[np.uint32]:
        """Count in four sets of counters."""
        bins = np.zeros(1 << bits, np.uint32)
        scratch = buffers.empty(4 * HISTOGRAM_COUNTERS)
        size = words.dtype.itemsize
        status = self._library.uw_histogram(
            words, words.size, size, shift, bits, stretch, scratch, bins
        )
        if status:
            raise UnweightError(f"no histogram of {bits} bits of {words.dtype}")
        return bins

    def normalise(self, counts: NDArray[np.int64]) -> Frequencies:
        """See ``Kernels.normalise``."""
        counts = np.ascontiguousarray(counts)
        tables = np.empty(counts.shape, np.uint16)
        self._library.uw_normalise(counts, len(counts), tables)
        return tables

    def lloyd(
        self,
        counts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        choice: NDArray[np.uint8],
        number: int,
    ) -> tuple[Frequencies, NDArray[np.uint8], int]:
        """See ``Kernels.lloyd``."""
        counts = np.ascontiguousarray(counts)
        choice, before = choice.copy(), np.empty_like(choice)
        tables = np.empty((number, ALPHABET), np.uint16)
        used = ctypes.c_uint32(number)
        cost = self._library.uw_lloyd(
            counts, len(counts), lengths, ctypes.byref(used), choice, before, tables
        )
        return tables[: used.value], choice, checked(cost)

    def serialise(self, frequencies: Frequencies) -> bytes:
        """See ``Kernels.serialise``."""
        frequencies = np.ascontiguousarray(frequencies).reshape(-1, ALPHABET)
        out = ctypes.create_string_buffer(MAX_TABLE_BYTES * len(frequencies))
        used = self._library.uw_serialise(frequencies, len(frequencies), out)
        return out.raw[:used]

    def parse(self, data: bytes, at: int, number: int) -> tuple[Frequencies, int]:
        """See ``Kernels.parse``."""
        tables = np.empty((number, ALPHABET), np.uint16)
        rest = np.frombuffer(data, np.uint8)[at:]
        return tables, at + checked(self._library.uw_parse(rest, rest.size, number, tables))

    def rans_encode(
        self,
        symbols: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
    ) -> Bytes:
        """Encode 32 lanes at a time."""
        out = buffers.empty(sum(2 * padded(n) + 4 * LANES + 8 for n in segments["count"].tolist()))
        tables = len(frequencies)
        room = room_for(tables, ENCODER_ROOM)
        of, _, shift = _contexts(contexts)
        used = self._library.uw_rans_encode(
            *(self._kernel, symbols, segments, len(segments)),
            *(frequencies, tables, of, shift, room, room.size, out),
        )
        return out[: checked(used)]

    def rans_decode(
        self,
        coded: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
        symbols: Bytes,
    ) -> None:
        """Decode 32 lanes at a time, two chunks in flight."""
        tables = len(frequencies)
        room = room_for(tables, DECODER_ROOM)
        status = self._library.uw_rans_decode(
            *(self._kernel, coded, coded.size, segments, len(segments)),
            *(frequencies, tables, *_contexts(contexts)),
            *(room, room.size, symbols, symbols.size),
        )
        checked(status)


def _contexts(contexts: Contexts | None) -> tuple[Bytes | None, int, int]:
    """Return contexts, how many there are, and log2 of the symbols that share each."""
    if contexts is None:
        return None, 0, 0
    return contexts.of, contexts.of.size, contexts.run.bit_length() - 1
