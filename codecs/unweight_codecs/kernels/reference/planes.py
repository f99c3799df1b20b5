"""Float words as symbols and raw bits: see ``specs/planes.md``.

The stages ``exponent_window`` and ``histogram_grid`` do the same in two steps, with streams between
them that a stage of a plugin can change; tests compare the two.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes, FloatSplit, Split16, padded

_BYTE = 8  # bits


class PlaneReference:
    """Splits and joins in unsigned integers of 64 bits."""

    def split(self, words: Bytes, count: int, split: FloatSplit) -> tuple[Bytes, Bytes, Bytes]:
        """See ``Kernels.split``."""
        whole, low_bits = _integers(words, split), split.mantissa_bits - split.top_bits
        value = whole >> low_bits & _ones(split.exponent_bits + split.top_bits)
        symbol = value.astype(np.int64) - (split.base << split.top_bits)
        outside = (symbol < 0) | (symbol >= split.escape_limit)
        escape = split.escape_limit | value & _ones(split.top_bits)
        symbols = np.zeros(padded(count), np.uint8)
        symbols[:count] = np.where(outside, escape, symbol.astype(np.uint64))
        sign = whole >> (split.exponent_bits + split.mantissa_bits)
        raw = sign << low_bits | whole & _ones(low_bits)
        planes = np.empty((split.raw_bits // _BYTE, count), np.uint8)
        for k, plane in enumerate(planes):
            plane[:] = raw >> _BYTE * k & 0xFF
        top = (raw >> _BYTE * len(planes)).astype(np.uint8)
        return symbols, planes, top if split.raw_bits % _BYTE else top[:0]

    def collect_escapes(self, words: Bytes, symbols: Bytes, count: int, split: FloatSplit) -> Bytes:
        """See ``Kernels.collect_escapes``."""
        escaped = _integers(words, split)[symbols[:count] >= split.escape_limit]
        exponents = escaped >> split.mantissa_bits & _ones(split.exponent_bits)
        return exponents.astype(f"<u{split.escape_bytes}").view(np.uint8)

    def join(
        self,
        symbols: Bytes,
        planes: Sequence[Bytes],
        top: Bytes,
        count: int,
        split: FloatSplit,
        words: Bytes,
    ) -> None:
        """See ``Kernels.join``. The exponents of damaged symbols stay inside their field."""
        low_bits = split.mantissa_bits - split.top_bits
        raw = np.zeros(count, np.uint64)
        for k, plane in enumerate([*planes, top] if split.raw_bits % _BYTE else planes):
            raw |= plane.astype(np.uint64) << _BYTE * k
        value = symbols[:count].astype(np.uint64) + (split.base << split.top_bits)
        whole = (value & _ones(split.exponent_bits + split.top_bits)) << low_bits
        whole |= raw & _ones(low_bits)
        whole |= (raw >> low_bits & 1) << (split.exponent_bits + split.mantissa_bits)
        words[:] = whole.astype(f"<u{split.word_bytes}").view(np.uint8)

    def patch(
        self, symbols: Bytes, count: int, split: FloatSplit, escapes: Bytes, words: Bytes
    ) -> None:
        """See ``Kernels.patch``."""
        escaped = symbols[:count] >= split.escape_limit
        if int(escaped.sum()) * split.escape_bytes != escapes.size:
            raise IntegrityError("a chunk has another number of escapes than its symbols ask for")
        field = _ones(split.exponent_bits) << split.mantissa_bits
        exponents = escapes.view(f"<u{split.escape_bytes}").astype(np.uint64)
        whole = words.view(f"<u{split.word_bytes}")
        others = whole[escaped].astype(np.uint64) & ~np.uint64(field)
        whole[escaped] = others | exponents << split.mantissa_bits & field

    def split16(
        self, words: Bytes, count: int, chunk_words: int, split: FloatSplit
    ) -> Split16 | None:
        """Decline: ``split`` and ``collect_escapes`` are the definition."""
        return None

    def decode16(
        self,
        coded: Bytes,
        chunks: NDArray[np.void],
        frequencies: NDArray[np.uint16],
        contexts: Bytes | None,
        split: FloatSplit,
        words: Bytes,
    ) -> bool:
        """Decline: ``rans_decode``, ``unpack_bits``, ``join`` and ``patch`` are the definition."""
        return False


def _integers(words: Bytes, split: FloatSplit) -> NDArray[np.uint64]:
    return words.view(f"<u{split.word_bytes}").astype(np.uint64)


def _ones(bits: int) -> int:
    return (1 << bits) - 1
