"""Binding of the C kernels. ``ctypes`` releases the GIL while they run."""

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError, UnweightError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.library import SLOTS_BYTES, pointer
from unweight_codecs.kernels.native_levels import NativeLevels
from unweight_codecs.kernels.operands import (
    ALPHABET,
    LANES,
    SEGMENT,
    Bytes,
    Contexts,
    FloatSplit,
    Frequencies,
    padded,
)

_HISTOGRAM_SCRATCH: Final = 4 * 4 << 14  # bytes: four sets of 2**14 counters
_MAX_PLANES: Final = 8
_TABLE_BYTES: Final = 2 + 2 * ALPHABET  # a serialised table takes at most
_CUT: Final = -1
# What one table takes in the form that the encoder looks symbols up in (src/unweight.h).
_STEPS_BYTES: Final = 4 * (3 * ALPHABET + 16)
_SPARE: Final = 64  # bytes a vector store may write beyond the end

# Mirrors uw_chunk16 of src/unweight.h.
CHUNK16 = np.dtype(
    [
        ("symbol", SEGMENT),
        ("plane", "<u8", 2),
        ("escape", "<u8"),
        ("escape_count", "<u8"),
    ]
)


class _Float(ctypes.Structure):
    """Mirrors uw_float of src/unweight.h."""

    _fields_ = [
        (name, ctypes.c_uint32)
        for name in ("word_bytes", "exponent_bits", "mantissa_bits", "top_bits", "base", "window")
    ]


def _contexts(contexts: Contexts | None) -> tuple[int | None, int]:
    return (
        (None, 0) if contexts is None else (contexts.of.ctypes.data, contexts.run.bit_length() - 1)
    )


def _format(value: FloatSplit) -> _Float:
    return _Float(
        value.word_bytes,
        value.exponent_bits,
        value.mantissa_bits,
        value.top_bits,
        value.base,
        value.window,
    )


class NativeKernels(NativeLevels):
    """The C kernels for one instruction set. See ``Kernels`` for the contracts.

    The library keeps one active instruction set per process, so only one instance is in use.
    """

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        super().__init__(library)
        self.name = name
        if library.uw_select(name.encode()):
            raise UnweightError(f"this processor does not run the {name} kernels")

    def histogram(
        self, words: NDArray[np.generic], shift: int, bits: int, block: int = 0
    ) -> NDArray[np.uint32]:
        """Count in four sets of counters."""
        bins = np.zeros(1 << bits, np.uint32)
        scratch = buffers.empty(_HISTOGRAM_SCRATCH)
        status = self._library.uw_histogram(
            words.ctypes.data, words.size, words.dtype.itemsize, shift, bits, block,
            scratch.ctypes.data, bins.ctypes.data,
        )  # fmt: skip
        if status:
            raise UnweightError(f"no histogram of {bits} bits of {words.dtype}")
        return bins

    def normalise(self, counts: NDArray[np.int64]) -> Frequencies:
        """Do what ``entropy.frequencies.normalise`` does."""
        counts = np.ascontiguousarray(counts)
        tables = np.empty(counts.shape, np.uint16)
        self._library.uw_normalise(counts.ctypes.data, len(counts), tables.ctypes.data)
        return tables

    def lloyd(
        self,
        counts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        choice: NDArray[np.uint8],
        number: int,
    ) -> tuple[Frequencies, NDArray[np.uint8], int]:
        """Refine ``choice``, the table of each histogram, as ``entropy.frequencies`` does."""
        counts = np.ascontiguousarray(counts)
        choice, tables = choice.copy(), np.empty((number, ALPHABET), np.uint16)
        used = ctypes.c_uint32(number)
        cost = self._library.uw_lloyd(
            counts.ctypes.data, len(counts), lengths.ctypes.data, ctypes.byref(used),
            choice.ctypes.data, tables.ctypes.data,
        )  # fmt: skip
        if cost < 0:
            raise UnweightError("out of memory while fitting frequency tables")
        return tables[: used.value], choice, int(cost)

    def serialise(self, frequencies: Frequencies) -> bytes:
        """Do what ``entropy.frequencies.serialise`` does."""
        frequencies = np.ascontiguousarray(frequencies).reshape(-1, ALPHABET)
        out = ctypes.create_string_buffer(_TABLE_BYTES * len(frequencies))
        used = self._library.uw_serialise(frequencies.ctypes.data, len(frequencies), out)
        return out.raw[:used]

    def parse(self, data: bytes, at: int, number: int) -> tuple[Frequencies, int]:
        """Do what ``entropy.frequencies.parse`` does."""
        tables = np.empty((number, ALPHABET), np.uint16)
        rest = np.frombuffer(data, np.uint8)[at:]
        used = self._library.uw_parse(rest.ctypes.data, rest.size, number, tables.ctypes.data)
        if used == _CUT:
            raise IntegrityError("a frequency table is cut short")
        if used < 0:
            raise IntegrityError("a frequency table does not sum to 4096")
        return tables, at + used

    def split(self, words: Bytes, count: int, form: FloatSplit) -> tuple[Bytes, Bytes, Bytes]:
        """Split ``count`` words into padded symbols, byte planes (planes, count) and top values."""
        symbols = buffers.empty(padded(count))
        symbols[count:] = 0
        planes = buffers.empty(form.raw_bits // 8 * count).reshape(-1, count)
        top = buffers.empty(count if form.raw_bits % 8 else 0)
        self._library.uw_split(
            words.ctypes.data, count, ctypes.byref(_format(form)), symbols.ctypes.data,
            planes.ctypes.data, count, top.ctypes.data,
        )  # fmt: skip
        return symbols, planes, top

    def split16(
        self, words: Bytes, count: int, chunk_words: int, form: FloatSplit
    ) -> tuple[Bytes, Bytes, Bytes, Bytes, NDArray[np.uint64]] | None:
        """Split 16-bit floats in one pass; None where there is no such kernel.

        Returns padded symbols, the low byte plane, the packed top plane, the escapes, and how many
        escapes each chunk has.
        """
        symbols = buffers.empty(padded(count) + _SPARE)
        low = buffers.empty((count if form.raw_bits >= 8 else 0) + _SPARE)
        top_bytes = -(-count * (form.raw_bits % 8) // 8)
        top = buffers.empty(top_bytes + _SPARE)
        escapes = buffers.empty(count + _SPARE)
        counts = np.zeros(-(-count // chunk_words), np.uint64)
        used = self._library.uw_split16(
            words.ctypes.data, count, chunk_words, ctypes.byref(_format(form)), symbols.ctypes.data,
            low.ctypes.data, top.ctypes.data, escapes.ctypes.data, counts.ctypes.data,
        )  # fmt: skip
        if used < 0:
            return None
        return symbols[:-_SPARE], low[:-_SPARE], top[:top_bytes], escapes[:used], counts

    def collect_escapes(self, words: Bytes, symbols: Bytes, count: int, form: FloatSplit) -> Bytes:
        """Return the exponents of the escaped ones among ``count`` words, as bytes."""
        out = buffers.empty(count * form.escape_bytes)
        used = self._library.uw_collect_escapes(
            words.ctypes.data,
            symbols.ctypes.data,
            count,
            ctypes.byref(_format(form)),
            out.ctypes.data,
        )
        return out[: used * form.escape_bytes]

    def join(
        self,
        symbols: Bytes,
        planes: Sequence[Bytes],
        top: Bytes,
        count: int,
        form: FloatSplit,
        words: Bytes,
    ) -> None:
        """Undo ``split``; escaped words get their exponents from ``patch``."""
        addresses = (ctypes.c_void_p * _MAX_PLANES)(*(plane.ctypes.data for plane in planes))
        self._library.uw_join(
            symbols.ctypes.data, addresses, top.ctypes.data, count, ctypes.byref(_format(form)),
            words.ctypes.data,
        )  # fmt: skip

    def patch(
        self, symbols: Bytes, count: int, form: FloatSplit, escapes: Bytes, words: Bytes
    ) -> None:
        """Put escaped exponents into ``words``; the escapes must fit the symbols exactly."""
        status = self._library.uw_patch(
            symbols.ctypes.data, count, ctypes.byref(_format(form)), escapes.ctypes.data,
            len(escapes) // form.escape_bytes, words.ctypes.data,
        )  # fmt: skip
        if status:
            raise IntegrityError("a chunk has another number of escapes than its symbols ask for")

    def take_field(self, blocks: Bytes, first: int, size: int, width: int) -> Bytes:
        """Unpack the ``size`` bytes at ``first`` of each row of ``blocks``; rows are dense."""
        out = buffers.empty(len(blocks) * size * 8 // width)
        self._library.uw_take_field(
            blocks.ctypes.data, len(blocks), blocks.strides[0], first, size, width, out.ctypes.data
        )
        return out

    def put_field(self, values: Bytes, first: int, size: int, width: int, blocks: Bytes) -> None:
        """Undo ``take_field`` into ``blocks``."""
        self._library.uw_put_field(
            values.ctypes.data,
            len(blocks),
            blocks.strides[0],
            first,
            size,
            width,
            blocks.ctypes.data,
        )

    def zero_points(
        self, halves: Sequence[Bytes], factor: float, below: int, contexts: int
    ) -> Bytes:
        """Do what ``layouts.contexts.ZeroPoint`` does, on the bytes of d and m, lowest first."""
        out = buffers.empty(halves[0].size)
        addresses = (ctypes.c_void_p * len(halves))(*(part.ctypes.data for part in halves))
        self._library.uw_zero_points(addresses, out.size, factor, below, contexts, out.ctypes.data)
        return out

    def pack_bits(self, values: Bytes, width: int) -> Bytes:
        """Pack with SWAR, PEXT or vector code."""
        out = buffers.empty(-(-values.size * width // 8) + 8)
        self._library.uw_pack_bits(values.ctypes.data, values.size, width, out.ctypes.data)
        return out[:-8]

    def unpack_bits(self, packed: Bytes, count: int, width: int) -> Bytes:
        """Unpack with SWAR, PDEP or VPMULTISHIFTQB."""
        out = buffers.empty(count)
        self._library.uw_unpack_bits(packed.ctypes.data, packed.size, count, width, out.ctypes.data)
        return out

    def rans_encode(
        self,
        symbols: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
    ) -> Bytes:
        """Encode 32 lanes at a time."""
        out = buffers.empty(sum(2 * padded(n) + 4 * LANES + 8 for n in segments["count"].tolist()))
        room = buffers.empty(len(frequencies) * _STEPS_BYTES)
        used = self._library.uw_rans_encode(
            symbols.ctypes.data, segments.ctypes.data, len(segments),
            frequencies.ctypes.data, len(frequencies), *_contexts(contexts),
            room.ctypes.data, out.ctypes.data,
        )  # fmt: skip
        if used < 0:
            raise UnweightError("a symbol to encode has no frequency")
        return out[:used]

    def rans_decode(
        self,
        coded: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
        symbols: Bytes,
    ) -> None:
        """Decode 32 lanes at a time, two chunks in flight."""
        room = buffers.empty(len(frequencies) * SLOTS_BYTES)
        status = self._library.uw_rans_decode(
            coded.ctypes.data, segments.ctypes.data, len(segments),
            frequencies.ctypes.data, len(frequencies), *_contexts(contexts),
            room.ctypes.data, symbols.ctypes.data,
        )  # fmt: skip
        if status:
            raise IntegrityError("a coded chunk is damaged")

    def decode16(
        self,
        coded: Bytes,
        chunks: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Bytes | None,
        form: FloatSplit,
        words: NDArray[np.uint16],
    ) -> bool:
        """Decode chunks of 16-bit floats straight to words; False when the kernel declines them."""
        room = buffers.empty(len(frequencies) * SLOTS_BYTES)
        status = self._library.uw_decode16(
            coded.ctypes.data, chunks.ctypes.data, len(chunks), frequencies.ctypes.data,
            len(frequencies), pointer(contexts), room.ctypes.data,
            ctypes.byref(_format(form)), words.ctypes.data,
        )  # fmt: skip
        if status > 0:
            raise IntegrityError("a coded chunk is damaged")
        return bool(status == 0)


__all__ = ["CHUNK16", "NativeKernels"]
