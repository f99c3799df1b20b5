"""Frequency tables: from histograms to quantised CDFs, in integer arithmetic only.

Tables decide the coded bytes, and the same input must give the same bytes on every processor, so
nothing here goes through floating point.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import ALPHABET, COST_BITS, SLOTS, Frequencies
from unweight_codecs.kernels.reference.tables import coded_bits, serialised_sizes

Counts = NDArray[np.int64]  # shape (…, 256)

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
    return kernels().normalise(counts)


def costs(counts: Counts, frequencies: Frequencies) -> NDArray[np.int64]:
    """Return the bits that coding each histogram (rows, 256) with its table takes, rounded up."""
    return coded_bits(counts, frequencies, code_lengths())


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
    return kernels().lloyd(counts, code_lengths(), choice, number)


def serialise(frequencies: Frequencies) -> bytes:
    """Write tables (rows, 256) one after the other.

    Each is u8 first used symbol, u8 last one, then a one- or two-byte varint for each symbol from
    the first to the last.
    """
    return kernels().serialise(frequencies)


def parse(data: bytes, at: int, number: int) -> tuple[Frequencies, int]:
    """Read ``number`` tables at ``at``; returns them and the position after them.

    Raises IntegrityError for tables that are cut short or do not sum to 4096.
    """
    return kernels().parse(data, at, number)


__all__ = [
    "cluster",
    "code_lengths",
    "costs",
    "normalise",
    "parse",
    "serialise",
    "serialised_sizes",
]
