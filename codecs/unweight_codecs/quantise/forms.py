"""Which grid: how many levels, where they lie, and which of their bits are coded."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.entropy import frequencies
from unweight_codecs.kernels.base import ALPHABET, LevelForm
from unweight_codecs.quantise.levels import LARGEST_LEVEL

WIDE: Final = LevelForm(low_bits=7, limit=128)  # what levels are counted on before a form is chosen
WIDE_BITS: Final = 14  # of its levels
_WIDE_LEVELS: Final = WIDE.limit << WIDE.low_bits
_ROUNDS: Final = 30
SPACINGS: Final = ("uniform", "cdf", "lloyd")
TABLE_UNIT: Final = 1 << 16  # levels of a table per root mean square of a chunk

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Choice:
    """A form, the bits that it is expected to take for all words, and its symbols' counts."""

    form: LevelForm
    bits: int
    counts: Counts


def equally_spaced(histograms: Counts, word_bits: int) -> Choice:
    """Choose low bits and limit for levels counted on ``WIDE``, shape (regions, levels + 1).

    The last count is that of words that stay as they are. All sizes are computed, none is guessed.
    """
    pooled = histograms.sum(axis=0)
    choices = []
    for low_bits in range(WIDE.low_bits + 1):
        limit = _limit(pooled, low_bits)
        form = LevelForm(low_bits, limit)
        counts = _symbol_counts(pooled[None], form)
        table = frequencies.normalise(counts)
        bits = int(frequencies.costs(counts, table)[0]) + 8 * int(
            frequencies.serialised_sizes(table)[0]
        )
        escapes = int(counts[0, limit])
        bits += (int(pooled.sum()) - escapes) * low_bits + escapes * (word_bits + low_bits)
        choices.append((bits, low_bits, form))
    bits, _, form = min(choices, key=lambda choice: choice[:2])
    return Choice(form, bits, _symbol_counts(histograms, form))


def _limit(pooled: Counts, low_bits: int) -> int:
    """Return how many symbols the levels that occur take, at most 254 and even.

    No more levels than those of ``WIDE``: what lies beyond them was counted as kept.
    """
    levels = np.flatnonzero(pooled[:-1]) - WIDE.bias
    if not levels.size:
        return 2
    reach = max(-int(levels[0]), int(levels[-1]) + 1)
    return min(254, _WIDE_LEVELS >> low_bits, 2 * max(1, -(-reach >> low_bits) + 1))


def _symbol_counts(histograms: Counts, form: LevelForm) -> Counts:
    """Turn counts of levels into counts of a form's symbols, shape (regions, 256)."""
    levels = np.arange(_WIDE_LEVELS) - WIDE.bias + form.bias
    inside = (levels >= 0) & (levels < form.limit << form.low_bits)
    symbols = np.where(inside, levels >> form.low_bits, form.limit)
    counts = np.zeros((len(histograms), ALPHABET), np.int64)
    for row, histogram in zip(counts, histograms, strict=True):
        row += np.bincount(symbols, histogram[:-1], minlength=ALPHABET).astype(np.int64)
        row[form.limit] += histogram[-1]
    return counts


def table_form(values: NDArray[np.float64], epsilon: float, spacing: str) -> LevelForm | None:
    """Return the fewest levels that keep the error of ``values`` below ``epsilon``.

    The values are in units of the root mean square of their chunk. ``spacing`` is ``"cdf"``, levels
    at equal steps of the CDF, q(w) = Q CDF(w) / CDF(w_max), or ``"lloyd"``, those of the Lloyd-Max
    quantiser. None where 254 levels are too few, or one of them would be too large.
    """
    values = np.sort(values)
    make = _LEVELS[spacing]
    few, enough = 1, 254
    if _error(values, make(values, enough)) > epsilon:
        return None
    while enough - few > 1:
        middle = (few + enough) // 2
        if _error(values, make(values, middle)) > epsilon:
            few = middle
        else:
            enough = middle
    levels = np.unique(np.rint(make(values, enough) * TABLE_UNIT).astype(np.int32))
    if np.abs(levels).max() > LARGEST_LEVEL:  # almost all values are zero
        return None
    return LevelForm(0, len(levels), levels)


def _by_cdf(values: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    places = (np.arange(number) + 0.5) / number * values.size
    return np.unique(values[places.astype(np.int64)])


def _by_lloyd(values: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """Return Lloyd-Max levels (Lloyd 1982, Max 1960): each the mean of the values nearest to it."""
    levels = _by_cdf(values, number)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    for _ in range(_ROUNDS):
        middles = (levels[1:] + levels[:-1]) / 2
        edges = np.concatenate([[0], np.searchsorted(values, middles), [values.size]])
        sizes = np.diff(edges)
        used = sizes > 0
        levels = (np.diff(sums[edges]) / np.maximum(sizes, 1))[used]
    return np.unique(levels)


_LEVELS: Final = {"cdf": _by_cdf, "lloyd": _by_lloyd}


def _error(values: NDArray[np.float64], levels: NDArray[np.float64]) -> float:
    middles = (levels[1:] + levels[:-1]) / 2
    error = levels[np.searchsorted(middles, values)] - values
    return float(np.sqrt(np.square(error).sum() / values.size))
