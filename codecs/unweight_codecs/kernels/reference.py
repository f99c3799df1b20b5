"""The NumPy reference of the kernels: what the formats mean, and the way without a compiler.

The rANS coder runs all chunks of a span side by side, so that each NumPy call does the work of one
step of 32 lanes of every chunk.
"""

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError, UnweightError
from unweight_codecs.kernels.operands import (
    ALPHABET,
    LANES,
    PROBABILITY_BITS,
    SAMPLING_STRIDE,
    SLOTS,
    STATE_LOW,
    Bytes,
    Contexts,
    Frequencies,
    padded,
)

STATE_BYTES = 4 * LANES


def _starts(frequencies: Frequencies) -> NDArray[np.uint32]:
    """Return the first slot of every symbol of every table."""
    sums = np.cumsum(frequencies, axis=1, dtype=np.uint32)
    return np.concatenate([np.zeros((len(sums), 1), np.uint32), sums[:, :-1]], axis=1)


def _slots(frequencies: Frequencies) -> Bytes:
    """Return the symbol of every slot of every table, shape (tables, 4096)."""
    if np.any(frequencies.sum(axis=1, dtype=np.int64) != SLOTS):
        raise IntegrityError("a frequency table does not sum to 4096")
    symbols = np.arange(ALPHABET, dtype=np.uint8)
    return np.stack([np.repeat(symbols, row) for row in frequencies])


def _by_step(values: Bytes, count: int) -> Bytes:
    """Reorder symbols into (step, lane): symbol i of a group is lane i // 4, step i % 4."""
    steps = values[:count].reshape(-1, LANES, 4).transpose(0, 2, 1)
    return np.ascontiguousarray(steps).reshape(-1, LANES)


class ReferenceKernels:
    """See ``Kernels`` for the contracts."""

    name = "reference"

    def histogram(
        self, words: NDArray[np.generic], shift: int, bits: int, block: int = 0
    ) -> NDArray[np.uint32]:
        """Count with ``numpy.bincount``."""
        if block:
            starts = range(0, words.size, SAMPLING_STRIDE * block)
            parts = [words[start : start + block] for start in starts]
            words = np.concatenate(parts) if parts else words
        unsigned = words.view(f"<u{words.dtype.itemsize}")
        field = (unsigned >> np.array(shift, unsigned.dtype)).astype(np.int64) & ((1 << bits) - 1)
        return np.bincount(field, minlength=1 << bits).astype(np.uint32)

    def pack_bits(self, values: Bytes, width: int) -> Bytes:
        """Pack through one byte per bit."""
        bits = np.unpackbits(values[:, None], axis=1, count=width, bitorder="little")
        return np.packbits(bits.reshape(-1), bitorder="little")

    def unpack_bits(self, packed: Bytes, count: int, width: int) -> Bytes:
        """Unpack through one byte per bit."""
        bits = np.unpackbits(packed, count=count * width, bitorder="little").reshape(count, width)
        return np.packbits(bits, axis=1, bitorder="little").reshape(count)

    def rans_encode(
        self,
        symbols: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
    ) -> Bytes:
        """Encode all segments step by step, last step first."""
        starts = _starts(frequencies).astype(np.uint64).reshape(-1)
        table = frequencies.astype(np.uint64).reshape(-1)
        rows = [_table_rows(symbols, segment, contexts, by_step=True) for segment in segments]
        steps = [len(row) for row in rows]
        longest = max(steps, default=0)
        state = np.full((len(rows), LANES), STATE_LOW, np.uint64)
        emitted = np.zeros((len(rows), longest, LANES), bool)
        words = np.zeros((len(rows), longest, LANES), np.uint16)
        index = np.zeros((len(rows), longest, LANES), np.int64)
        for i, row in enumerate(rows):
            index[i, : len(row)] = row
        order = np.argsort([-n for n in steps], kind="stable")
        for step in range(longest - 1, -1, -1):
            live = order[: sum(n > step for n in steps)]
            at = index[live, step]
            frequency, now = table[at], state[live]
            if not frequency.all():
                raise UnweightError("a symbol to encode has no frequency")
            full = now >> np.uint64(20) >= frequency
            emitted[live, step], words[live, step] = full, now.astype(np.uint16)
            now = np.where(full, now >> np.uint64(16), now)
            state[live] = (
                (now // frequency << np.uint64(PROBABILITY_BITS)) + now % frequency + starts[at]
            )
        parts: list[Bytes] = []
        used = 0
        for i, segment in enumerate(segments):
            body = words[i][emitted[i]].astype("<u2").view(np.uint8)
            coded = np.concatenate([state[i].astype("<u4").view(np.uint8), body])
            segment["offset"], segment["length"] = used, len(coded)
            parts += [coded, np.zeros(-len(coded) % 8, np.uint8)]
            used += len(coded) + -len(coded) % 8
        return np.concatenate(parts) if parts else np.zeros(0, np.uint8)

    def rans_decode(
        self,
        coded: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
        symbols: Bytes,
    ) -> None:
        """Decode all segments step by step."""
        starts = _starts(frequencies).astype(np.uint64)
        table, slots = frequencies.astype(np.uint64), _slots(frequencies)
        count = len(segments)
        if not count:
            return
        steps = np.array([padded(int(s["count"])) // LANES for s in segments])
        words, ends = _padded_words(coded, segments)
        state = words[:, : 2 * LANES].copy().view("<u4").astype(np.uint64)
        cursor = np.full(count, 2 * LANES, np.int64)
        rows = np.zeros((count, int(steps.max()), LANES), np.int64)
        for i, segment in enumerate(segments):
            rows[i, : steps[i]] = _context_rows(segment, contexts)
        if rows.size and (rows.max(initial=0) >= len(table)):
            raise IntegrityError("a chunk names a frequency table that does not exist")
        out = np.zeros((count, int(steps.max()), LANES), np.uint8)
        order = np.argsort(-steps, kind="stable")
        for step in range(int(steps.max())):
            live = order[: int((steps > step).sum())]
            now, row = state[live], rows[live, step]
            slot = (now & np.uint64(SLOTS - 1)).astype(np.int64)
            symbol = slots[row, slot]
            frequency = table[row, symbol]
            now = (
                frequency * (now >> np.uint64(PROBABILITY_BITS))
                + slot.astype(np.uint64)
                - starts[row, symbol]
            )
            low = now < STATE_LOW
            # Lanes refill in ascending order: lane k takes the word after those of the lanes below.
            at = cursor[live][:, None] + np.cumsum(low, axis=1) - low
            fresh = words[live[:, None], np.minimum(at, words.shape[1] - 1)]
            state[live] = np.where(low, now << np.uint64(16) | fresh, now)
            cursor[live] += low.sum(axis=1)
            out[live, step] = symbol
        if np.any(cursor != ends) or np.any(state != STATE_LOW):
            raise IntegrityError("a coded chunk does not end where its encoding began")
        for i, segment in enumerate(segments):
            start, size = int(segment["start"]), int(steps[i]) * LANES
            part = out[i, : steps[i]].reshape(-1, 4, LANES).transpose(0, 2, 1)
            symbols[start : start + size] = np.ascontiguousarray(part).reshape(-1)


def _padded_words(
    coded: Bytes, segments: NDArray[np.void]
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Return the 16-bit words of every segment as rows of one array, and each row's length."""
    lengths = segments["length"].astype(np.int64)
    if np.any(lengths < STATE_BYTES) or np.any(lengths % 2):
        raise IntegrityError("a coded chunk is too short")
    rows = np.zeros((len(segments), int(lengths.max()) // 2 + 1), "<u2")
    for i, segment in enumerate(segments):
        offset, length = int(segment["offset"]), int(segment["length"])
        rows[i, : length // 2] = np.frombuffer(coded[offset : offset + length].tobytes(), "<u2")
    return rows, lengths // 2


def _context_rows(segment: np.void, contexts: Contexts | None) -> NDArray[np.int64]:
    """Return the table of every (step, lane) of a segment."""
    count = padded(int(segment["count"]))
    if contexts is None:
        return np.full((count // LANES, LANES), int(segment["table"]), np.int64)
    first = int(segment["start"]) // contexts.run
    of = contexts.of[first : first + count // contexts.run].repeat(contexts.run)
    return _by_step(of, count).astype(np.int64)


def _table_rows(
    symbols: Bytes, segment: np.void, contexts: Contexts | None, *, by_step: bool
) -> NDArray[np.int64]:
    """Return the flat index into the tables of every (step, lane) of a segment."""
    start, count = int(segment["start"]), padded(int(segment["count"]))
    return _context_rows(segment, contexts) * ALPHABET + _by_step(symbols[start:], count)
