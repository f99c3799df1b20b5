"""Frequency tables: from histograms to quantised CDFs, in integer arithmetic only.

Tables decide the coded bytes, and the same input must give the same bytes on every processor, so
nothing here goes through floating point. The C kernels repeat this arithmetic step for step.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import ALPHABET, SLOTS, Frequencies

Counts = NDArray[np.int64]  # shape (…, 256)

COST_BITS = 12  # code lengths are counted in 1/4096 bit
_ROUNDS = 3  # of Lloyd's algorithm; more gain nothing measurable
_TWO_BYTES = 0x80  # frequencies from here up take two bytes
_ABSENT = 16 << COST_BITS  # what a symbol without a frequency is taken to cost


@functools.cache
def code_lengths() -> NDArray[np.int64]:
    """Return -log2(f / 4096) for f = 0 … 4096 in units of 2**-12 bit, by repeated squaring."""
    value = np.arange(SLOTS + 1, dtype=np.uint64)
    value[0] = 1
    exponent = np.zeros(SLOTS + 1, np.int64)
    for shift in range(SLOTS.bit_length() - 1, 0, -1):
        exponent[(value >> np.uint64(shift) != 0) & (exponent == 0)] = shift
    mantissa = value << (np.uint64(31) - exponent.astype(np.uint64))  # in [2**31, 2**32)
    fraction = np.zeros(SLOTS + 1, np.int64)
    for _ in range(COST_BITS):
        mantissa = mantissa * mantissa >> np.uint64(31)
        carry = mantissa >> np.uint64(32) != 0
        mantissa = np.where(carry, mantissa >> np.uint64(1), mantissa)
        fraction = fraction << 1 | carry
    lengths: NDArray[np.int64] = (12 << COST_BITS) - (exponent << COST_BITS | fraction)
    lengths[0] = _ABSENT
    return lengths


def normalise(counts: Counts) -> Frequencies:
    """Scale histograms (rows, 256) to frequencies whose rows sum to 4096, used symbols at least 1.

    Fractions are rounded by largest remainder; what the minimum of 1 adds is taken from the
    largest frequencies, where it costs least. A row without counts gives all to symbol 0.
    """
    active = kernels()
    if isinstance(active, NativeKernels):
        return active.normalise(counts)
    counts = np.where((counts.sum(axis=1) == 0)[:, None] & (np.arange(ALPHABET) == 0), 1, counts)
    totals = counts.sum(axis=1)[:, None]
    scaled = counts * SLOTS
    frequencies = np.maximum(scaled // totals, counts > 0)
    missing = SLOTS - frequencies.sum(axis=1)
    for row, order in enumerate(np.argsort(-(scaled % totals), axis=1, kind="stable")):
        frequencies[row, order[: max(0, int(missing[row]))]] += 1
        for _ in range(-int(missing[row])):
            frequencies[row, np.argmax(frequencies[row])] -= 1
    return np.asarray(frequencies, np.uint16)


def costs(counts: Counts, frequencies: Frequencies) -> NDArray[np.int64]:
    """Return the bits that coding each histogram (rows, 256) with its table takes, rounded up."""
    units = (counts * code_lengths()[frequencies]).sum(axis=1)
    bits: NDArray[np.int64] = -(-units >> COST_BITS)
    return bits


def cluster(counts: Counts, limit: int) -> tuple[Frequencies, NDArray[np.uint8], int]:
    """Find at most ``limit`` tables for histograms of shape (regions, 256).

    Returns the tables, the table of each region, and the cost in bits including the tables.
    Lloyd's algorithm with code length as the distance; the number of tables is doubled for as long
    as the total cost falls.
    """
    best = _lloyd(counts, np.zeros(len(counts), np.uint8), 1)
    order = np.argsort(_means(counts), kind="stable")
    number = 2
    while number <= min(limit, len(counts)):
        choice = np.empty(len(counts), np.uint8)
        choice[order] = np.arange(len(counts)) * number // len(counts)
        found = _lloyd(counts, choice, number)
        if found[2] >= best[2]:
            break
        best = found
        number *= 2
    return best


def _means(counts: Counts) -> NDArray[np.int64]:
    """Return the mean symbol of each histogram, in units of 2**-16."""
    totals = np.maximum(counts.sum(axis=1), 1)
    return np.asarray(counts @ np.arange(ALPHABET) * (1 << 16) // totals, np.int64)


def _lloyd(
    counts: Counts, choice: NDArray[np.uint8], number: int
) -> tuple[Frequencies, NDArray[np.uint8], int]:
    active = kernels()
    if isinstance(active, NativeKernels):
        return active.lloyd(counts, code_lengths(), choice, number)
    tables = normalise(_pooled(counts, choice))
    for _ in range(_ROUNDS if number > 1 else 0):
        nearest = _renumbered((counts @ code_lengths()[tables].T).argmin(axis=1))
        if np.array_equal(nearest, choice):
            break
        choice = nearest
        tables = normalise(_pooled(counts, choice))
    total = int(costs(counts, tables[choice]).sum() + 8 * serialised_sizes(tables).sum())
    return tables, choice, total


def _renumbered(choice: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Close the gaps that tables without regions leave in the numbering."""
    return np.unique(choice, return_inverse=True)[1].astype(np.uint8)


def _pooled(counts: Counts, choice: NDArray[np.uint8]) -> Counts:
    tables = np.arange(int(choice.max(initial=0)) + 1)
    pooled: Counts = (choice == tables[:, None]).astype(np.int64) @ counts
    return pooled


def serialised_sizes(frequencies: Frequencies) -> NDArray[np.int64]:
    """Return the bytes that ``serialise`` gives for each table."""
    used = frequencies > 0
    first, last = np.argmax(used, axis=1), ALPHABET - np.argmax(used[:, ::-1], axis=1)
    sizes = 2 + last - first + np.count_nonzero(frequencies >= _TWO_BYTES, axis=1)
    return np.asarray(sizes, np.int64)


def serialise(frequencies: Frequencies) -> bytes:
    """Write tables (rows, 256) one after the other.

    Each is u8 first used symbol, u8 last one, then a one- or two-byte varint for each symbol from
    the first to the last.
    """
    active = kernels()
    if isinstance(active, NativeKernels):
        return active.serialise(frequencies)
    out = bytearray()
    for row in frequencies:
        used = np.flatnonzero(row)
        first, last = int(used[0]), int(used[-1])
        out += bytes([first, last])
        for frequency in row[first : last + 1].tolist():
            if frequency < _TWO_BYTES:
                out.append(frequency)
            else:
                out += bytes([frequency & 0x7F | 0x80, frequency >> 7])
    return bytes(out)


def parse(data: bytes, at: int, number: int) -> tuple[Frequencies, int]:
    """Read ``number`` tables at ``at``; returns them and the position after them.

    Raises IntegrityError for tables that are cut short or do not sum to 4096.
    """
    active = kernels()
    if isinstance(active, NativeKernels):
        return active.parse(data, at, number)
    tables = np.zeros((number, ALPHABET), np.uint16)
    for row in tables:
        try:
            first, last = data[at], data[at + 1]
            at += 2
            for symbol in range(first, last + 1):
                value = data[at]
                at += 1
                if value & 0x80:
                    value = value & 0x7F | data[at] << 7
                    at += 1
                row[symbol] = value
        except IndexError:
            raise IntegrityError("a frequency table is cut short") from None
        if int(row.sum(dtype=np.int64)) != SLOTS:
            raise IntegrityError("a frequency table does not sum to 4096")
    return tables, at
