"""Counting, and frequency tables in integer arithmetic only.

Tables decide the coded bytes, and the same input must give the same bytes on every processor, so
nothing here goes through floating point. The C kernels repeat this arithmetic operation by
operation.
"""

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import (
    ALPHABET,
    COST_BITS,
    LLOYD_ITERATIONS,
    SAMPLING_STRIDE,
    SLOTS,
    Frequencies,
)

_TWO_BYTES = 0x80  # frequencies from here up take two bytes


class TableReference:
    """Counts with ``numpy.bincount``, fits and writes tables row by row."""

    def histogram(
        self, words: NDArray[np.generic], shift: int, bits: int, stretch: int = 0
    ) -> NDArray[np.uint32]:
        """See ``Kernels.histogram``."""
        if stretch:
            starts = range(0, words.size, SAMPLING_STRIDE * stretch)
            parts = [words[start : start + stretch] for start in starts]
            words = np.concatenate(parts) if parts else words
        unsigned = words.view(f"<u{words.dtype.itemsize}")
        field = (unsigned >> np.array(shift, unsigned.dtype)).astype(np.int64) & ((1 << bits) - 1)
        return np.bincount(field, minlength=1 << bits).astype(np.uint32)

    def normalise(self, counts: NDArray[np.int64]) -> Frequencies:
        """See ``Kernels.normalise``.

        Fractions are rounded by largest remainder; what the minimum of 1 adds is taken from the
        largest frequencies, where it costs least.
        """
        unused = (counts.sum(axis=1) == 0)[:, None]
        counts = np.where(unused & (np.arange(ALPHABET) == 0), 1, counts)
        totals = counts.sum(axis=1)[:, None]
        scaled = counts * SLOTS
        frequencies = np.maximum(scaled // totals, counts > 0)
        missing = SLOTS - frequencies.sum(axis=1)
        for row, order in enumerate(np.argsort(-(scaled % totals), axis=1, kind="stable")):
            frequencies[row, order[: max(0, int(missing[row]))]] += 1
            for _ in range(-int(missing[row])):
                frequencies[row, np.argmax(frequencies[row])] -= 1
        return np.asarray(frequencies, np.uint16)

    def lloyd(
        self,
        counts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        choice: NDArray[np.uint8],
        number: int,
    ) -> tuple[Frequencies, NDArray[np.uint8], int]:
        """See ``Kernels.lloyd``."""
        tables = self.normalise(_pooled(counts, choice))
        for _ in range(LLOYD_ITERATIONS if number > 1 else 0):
            nearest = _renumbered((counts @ lengths[tables].T).argmin(axis=1))
            if np.array_equal(nearest, choice):
                break
            choice = nearest
            tables = self.normalise(_pooled(counts, choice))
        coded = int(coded_bits(counts, tables[choice], lengths).sum())
        return tables, choice, coded + 8 * int(serialised_sizes(tables).sum())

    def serialise(self, frequencies: Frequencies) -> bytes:
        """See ``Kernels.serialise``."""
        out = bytearray()
        for row in frequencies:
            used = np.flatnonzero(row)
            first, last = int(used[0]), int(used[-1])
            out += bytes([first, last])
            for frequency in row[first : last + 1].tolist():
                if frequency < _TWO_BYTES:
                    out.append(frequency)
                else:
                    out += bytes([frequency & 0x7F | _TWO_BYTES, frequency >> 7])
        return bytes(out)

    def parse(self, data: bytes, at: int, number: int) -> tuple[Frequencies, int]:
        """See ``Kernels.parse``."""
        tables = np.zeros((number, ALPHABET), np.uint16)
        for row in tables:
            try:
                first, last = data[at], data[at + 1]
                at += 2
                for symbol in range(first, last + 1):
                    value = data[at]
                    at += 1
                    if value & _TWO_BYTES:
                        value = value & 0x7F | data[at] << 7
                        at += 1
                    row[symbol] = value
            except IndexError:
                raise IntegrityError("a frequency table is cut short") from None
            if int(row.sum(dtype=np.int64)) != SLOTS:
                raise IntegrityError("a frequency table does not sum to 4096")
        return tables, at


def coded_bits(
    counts: NDArray[np.int64], frequencies: Frequencies, lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the bits that coding each histogram (rows, 256) with its table takes, rounded up.

    ``lengths`` are those of ``Kernels.lloyd``.
    """
    units = (counts * lengths[frequencies]).sum(axis=1)
    bits: NDArray[np.int64] = -(-units >> COST_BITS)
    return bits


def serialised_sizes(frequencies: Frequencies) -> NDArray[np.int64]:
    """Return the bytes that ``Kernels.serialise`` writes for each table."""
    used = frequencies > 0
    first, last = np.argmax(used, axis=1), ALPHABET - np.argmax(used[:, ::-1], axis=1)
    sizes = 2 + last - first + np.count_nonzero(frequencies >= _TWO_BYTES, axis=1)
    return np.asarray(sizes, np.int64)


def _renumbered(choice: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Close the gaps that tables without regions leave in the numbering."""
    return np.unique(choice, return_inverse=True)[1].astype(np.uint8)


def _pooled(counts: NDArray[np.int64], choice: NDArray[np.uint8]) -> NDArray[np.int64]:
    tables = np.arange(int(choice.max(initial=0)) + 1)
    pooled: NDArray[np.int64] = (choice == tables[:, None]).astype(np.int64) @ counts
    return pooled
