"""Tables of levels: where they lie, and how many the error bound takes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.levels import MAX_LEVEL
from unweight_codecs.kernels.operands import LevelForm

TABLE_UNIT: Final = 1 << 16  # levels of a table per unit of a sample
_MOST_LEVELS: Final = 254
_ROUNDS: Final = 30
_SPARE_BITS: Final = 0.25  # by which the logarithm of the number of levels is above their entropy
_FINENESS: Final = 1 << 9  # of the largest magnitude: values nearer than that count as one

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """Values that levels have to stand for, from all chunks.

    Attributes:
        values: Sorted, each in the unit of its chunk.
        square: Sum of squares of as many weights, in the same units: an error is relative to it.
        units: The unit of every chunk, shape (chunks,); 0 where all values are zero.
    """

    values: Values
    square: float
    units: Values

    @classmethod
    def of(cls, parts: Sequence[Values], ends: Values, means: Values) -> Self:
        """Make a sample of values of every chunk, their least and greatest, and their size.

        The unit is the largest magnitude of a chunk where that leaves few distinct values, as
        they then are the same in all chunks; otherwise it is the root mean square, in ``means``.
        """
        largest = np.abs(ends).max(axis=1)
        distinct = np.unique(np.rint(_joined(parts, largest) * _FINENESS))
        if distinct.size <= _MOST_LEVELS:  # then a rare one matters, and the ends may be rare
            units, parts = largest, [np.append(*both) for both in zip(parts, ends, strict=True)]
        else:
            units = np.where(largest > 0, means, 0)
        sizes = np.array([part.size for part in parts])
        shares = np.divide(means, units, out=np.zeros_like(means), where=units > 0)
        square = float((sizes * np.square(shares)).sum())
        return cls(np.sort(_joined(parts, units)), square, units)


def _joined(parts: Sequence[Values], units: Values) -> Values:
    scaled = [part / unit for part, unit in zip(parts, units.tolist(), strict=True) if unit > 0]
    return np.concatenate(scaled) if scaled else np.zeros(0)


def table_form(
    sample: Sample, epsilon: float, spacing: str, max_bits: float, too_few: int = 1
) -> LevelForm | None:
    """Return the fewest levels that keep the relative error of a sample below ``epsilon``.

    They are more than ``too_few``, unless there are fewer distinct values. ``spacing`` is
    ``"cdf"``, levels at equal steps of the CDF, q(w) = Q CDF(w) / CDF(w_max), or ``"lloyd"``,
    those of the Lloyd-Max quantiser. None where 254 levels are too few, their entropy is above
    ``max_bits`` per value, one of them would be too large, or there are no values.
    """
    if not sample.values.size:
        return None
    trial = _Trial(sample, epsilon, spacing)
    if trial.is_hopeless(max_bits) or not trial.keeps(_MOST_LEVELS):
        return None
    few, enough = too_few, _MOST_LEVELS
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if trial.keeps(middle) else (middle, enough)
    found = trial.levels(enough)
    if trial.bits(found) > max_bits:
        return None
    levels = np.unique(np.rint(found * TABLE_UNIT).astype(np.int32))
    if np.abs(levels).max() > MAX_LEVEL:  # almost all values are zero
        return None
    return LevelForm(0, len(levels), levels)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Tries numbers of levels on a sample."""

    sample: Sample
    epsilon: float
    spacing: str

    def levels(self, number: int) -> Values:
        """Return so many levels, fewer where there are fewer values."""
        return TABLES[self.spacing](self.sample.values, number)

    def keeps(self, number: int) -> bool:
        """Whether so many levels keep the error small enough."""
        return self._error(self.levels(number)) <= self.epsilon

    def is_hopeless(self, max_bits: float) -> bool:
        """Whether levels with an entropy of about ``max_bits`` are too few: more have more."""
        if max_bits + _SPARE_BITS >= np.log2(_MOST_LEVELS):
            return False
        levels = self.levels(max(2, math.ceil(2 ** (max_bits + _SPARE_BITS))))
        return self.bits(levels) > max_bits and self._error(levels) > self.epsilon

    def bits(self, levels: Values) -> float:
        """Return the entropy of the levels of the values, in bits per value."""
        counts = np.bincount(self._nearest(levels))
        share = counts[counts > 0] / self.sample.values.size
        return float(-(share * np.log2(share)).sum())

    def _error(self, levels: Values) -> float:
        error = levels[self._nearest(levels)] - self.sample.values
        square = float(np.square(error).sum())
        return float(np.sqrt(square / self.sample.square)) if self.sample.square else square

    def _nearest(self, levels: Values) -> NDArray[np.intp]:
        return np.searchsorted((levels[1:] + levels[:-1]) / 2, self.sample.values)


def _by_cdf(values: Values, number: int) -> Values:
    places = (np.arange(number) + 0.5) / number * values.size
    return np.unique(values[places.astype(np.int64)])


def _by_lloyd(values: Values, number: int) -> Values:
    """Return Lloyd-Max levels (Lloyd 1982, Max 1960): each the mean of the values nearest to it.

    Where there are no more distinct values than levels, they are what it begins with.
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    edges = np.flatnonzero(np.diff(np.rint(values * _FINENESS))) + 1
    if edges.size < number:
        edges = np.concatenate([[0], edges, [values.size]])
        levels = np.diff(sums[edges]) / np.diff(edges)
    else:
        levels = _by_cdf(values, number)
    for _ in range(_ROUNDS):
        middles = (levels[1:] + levels[:-1]) / 2
        edges = np.concatenate([[0], np.searchsorted(values, middles), [values.size]])
        sizes = np.diff(edges)
        used = sizes > 0
        levels = (np.diff(sums[edges]) / np.maximum(sizes, 1))[used]
    return np.unique(levels)


TABLES: Final[dict[str, Callable[[Values, int], Values]]] = {"cdf": _by_cdf, "lloyd": _by_lloyd}
