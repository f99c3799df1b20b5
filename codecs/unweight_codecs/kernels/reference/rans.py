"""The rANS coder: see ``specs/rans32.md``.

All chunks of a span are coded side by side, so that each NumPy call does the work of one round of
32 lanes of every chunk.
"""

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError, UnweightError
from unweight_codecs.kernels.operands import (
    ALPHABET,
    LANES,
    PROBABILITY_BITS,
    SLOTS,
    STATE_LOW,
    Bytes,
    Contexts,
    Frequencies,
    padded,
)

_STATE_BYTES = 4 * LANES


class RansReference:
    """Codes round by round."""

    def rans_encode(
        self,
        symbols: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
    ) -> Bytes:
        """See ``Kernels.rans_encode``. The last round comes first."""
        starts = _starts(frequencies).astype(np.uint64).reshape(-1)
        table = frequencies.astype(np.uint64).reshape(-1)
        rows = [_table_rows(symbols, segment, contexts) for segment in segments]
        rounds = [len(row) for row in rows]
        longest = max(rounds, default=0)
        state = np.full((len(rows), LANES), STATE_LOW, np.uint64)
        emitted = np.zeros((len(rows), longest, LANES), bool)
        words = np.zeros((len(rows), longest, LANES), np.uint16)
        index = np.zeros((len(rows), longest, LANES), np.int64)
        for i, row in enumerate(rows):
            index[i, : len(row)] = row
        order = np.argsort([-n for n in rounds], kind="stable")
        for at_round in range(longest - 1, -1, -1):
            live = order[: sum(n > at_round for n in rounds)]
            at = index[live, at_round]
            frequency, now = table[at], state[live]
            if not frequency.all():
                raise UnweightError("a symbol to encode has no frequency")
            full = now >> np.uint64(20) >= frequency
            emitted[live, at_round], words[live, at_round] = full, now.astype(np.uint16)
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
        """See ``Kernels.rans_decode``."""
        _check_segments(coded, segments, contexts, symbols)
        starts = _starts(frequencies).astype(np.uint64)
        table, slots = frequencies.astype(np.uint64), _slots(frequencies)
        count = len(segments)
        if not count:
            return
        rounds = np.array([padded(int(s["count"])) // LANES for s in segments])
        words, ends = _padded_words(coded, segments)
        state = words[:, : 2 * LANES].copy().view("<u4").astype(np.uint64)
        cursor = np.full(count, 2 * LANES, np.int64)
        rows = np.zeros((count, int(rounds.max()), LANES), np.int64)
        for i, segment in enumerate(segments):
            rows[i, : rounds[i]] = _context_rows(segment, contexts)
        if rows.size and (rows.max(initial=0) >= len(table)):
            raise IntegrityError("a chunk names a frequency table that does not exist")
        out = np.zeros((count, int(rounds.max()), LANES), np.uint8)
        order = np.argsort(-rounds, kind="stable")
        for at_round in range(int(rounds.max())):
            live = order[: int((rounds > at_round).sum())]
            now, row = state[live], rows[live, at_round]
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
            out[live, at_round] = symbol
        if np.any(cursor != ends) or np.any(state != STATE_LOW):
            raise IntegrityError("a coded chunk does not end where its encoding began")
        for i, segment in enumerate(segments):
            start, size = int(segment["start"]), int(rounds[i]) * LANES
            part = out[i, : rounds[i]].reshape(-1, 4, LANES).transpose(0, 2, 1)
            symbols[start : start + size] = np.ascontiguousarray(part).reshape(-1)


def _starts(frequencies: Frequencies) -> NDArray[np.uint32]:
    """Return the first slot of every symbol of every table."""
    sums = np.cumsum(frequencies, axis=1, dtype=np.uint32)
    return np.concatenate([np.zeros((len(sums), 1), np.uint32), sums[:, :-1]], axis=1)


def _slots(frequencies: Frequencies) -> Bytes:
    """Return the symbol of every slot of every table, shape (tables, 4096)."""
    if not len(frequencies):
        raise IntegrityError("a chunk names a frequency table that does not exist")
    if np.any(frequencies.sum(axis=1, dtype=np.int64) != SLOTS):
        raise IntegrityError("a frequency table does not sum to 4096")
    symbols = np.arange(ALPHABET, dtype=np.uint8)
    return np.stack([np.repeat(symbols, row) for row in frequencies])


def _by_round(values: Bytes, count: int) -> Bytes:
    """Reorder symbols into (round, lane): symbol i of a group is lane i // 4, round i % 4."""
    rounds = values[:count].reshape(-1, LANES, 4).transpose(0, 2, 1)
    return np.ascontiguousarray(rounds).reshape(-1, LANES)


def _check_segments(
    coded: Bytes, segments: NDArray[np.void], contexts: Contexts | None, symbols: Bytes
) -> None:
    """Raise IntegrityError where a segment points outside of the arrays."""
    for segment in segments:
        start, count = int(segment["start"]), padded(int(segment["count"]))
        if int(segment["offset"]) + int(segment["length"]) > coded.size:
            raise IntegrityError("a coded chunk does not lie where it should")
        if start + count > symbols.size:
            raise IntegrityError("a coded chunk has more symbols than there is room for")
        if contexts is not None and (start + count) // contexts.run > contexts.of.size:
            raise IntegrityError("a coded chunk has symbols without a context")


def _padded_words(
    coded: Bytes, segments: NDArray[np.void]
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Return the 16-bit words of every segment as rows of one array, and each row's length."""
    lengths = segments["length"].astype(np.int64)
    if np.any(lengths < _STATE_BYTES) or np.any(lengths % 2):
        raise IntegrityError("a coded chunk is too short")
    rows = np.zeros((len(segments), int(lengths.max()) // 2 + 1), "<u2")
    for i, segment in enumerate(segments):
        offset, length = int(segment["offset"]), int(segment["length"])
        rows[i, : length // 2] = np.frombuffer(coded[offset : offset + length].tobytes(), "<u2")
    return rows, lengths // 2


def _context_rows(segment: np.void, contexts: Contexts | None) -> NDArray[np.int64]:
    """Return the table of every (round, lane) of a segment."""
    count = padded(int(segment["count"]))
    if contexts is None:
        return np.full((count // LANES, LANES), int(segment["table"]), np.int64)
    first = int(segment["start"]) // contexts.run
    of = contexts.of[first : first + count // contexts.run].repeat(contexts.run)
    return _by_round(of, count).astype(np.int64)


def _table_rows(symbols: Bytes, segment: np.void, contexts: Contexts | None) -> NDArray[np.int64]:
    """Return the flat index into the tables of every (round, lane) of a segment."""
    start, count = int(segment["start"]), padded(int(segment["count"]))
    return _context_rows(segment, contexts) * ALPHABET + _by_round(symbols[start:], count)
