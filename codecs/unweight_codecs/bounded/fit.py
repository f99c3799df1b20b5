"""Fits the model of a tensor that may change by a relative error: steps, grid and tables."""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.chunks import (
    Chunk,
    Step,
    chunks_of,
    encode_chunk,
    predicted,
    sampled,
    square_of,
)
from unweight_codecs.bounded.level_tables import TABLES, Sample, table_form
from unweight_codecs.bounded.steps import step_for, table_step_for
from unweight_codecs.bounded.uniform_levels import (
    WIDE,
    WIDE_BITS,
    WIDE_LEVELS,
    Counts,
    equally_spaced,
)
from unweight_codecs.codec import TensorView
from unweight_codecs.entropy import frequencies
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import ALPHABET, Frequencies, LevelForm, LowRank
from unweight_codecs.model import FitSettings, TensorModel

_AUTO: Final = "auto"
_UNIFORM: Final = "uniform"
_SAMPLE: Final = 1 << 13
_WORTHWHILE: Final = 0.995  # a grid with a table has to be smaller by this much
_TRIES: Final = 6
_SMALLEST_STRIDE: Final = 0.8  # at once: a chunk with a few far values asks for too much
_CLOSE: Final = 0.995  # of the error allowed: what to aim at
_LEVEL_BITS: Final = 32  # of a level of a table


@dataclass(frozen=True, slots=True)
class BoundedFit:
    """What was decided for a tensor, and the bits of levels, tables, escapes and factors."""

    form: LevelForm
    steps: list[Step]
    factors: LowRank | None
    tables: Frequencies
    table_of_region: NDArray[np.uint8]
    bits: int


def fit(tensor: TensorView, model: TensorModel, epsilon: float) -> BoundedFit:
    """Find the smallest grid that keeps every chunk within the relative error ``epsilon``.

    Factors that the model has are dropped where equally spaced levels alone are smaller. A table
    of levels that some chunk cannot keep the bound with is not used, even where only tables were
    asked for: then levels are equally spaced.
    """
    task = _FitTask(tensor, model, epsilon)
    factors, spacing = model.on_levels.factors, task.settings.spacing
    proposed = (None,) if factors is None else (None, factors)
    grids = [_Grid(each, task.no_counts(WIDE_LEVELS + 1)) for each in proposed]
    for chunk in chunks_of(tensor, model):
        square = square_of(chunk)
        for each in grids:
            _add(each, predicted(chunk, each.factors, tensor), square, task)
    fitted = [_fitted(each, *equally_spaced(each.counts, task.word_bits), task) for each in grids]
    best, grid = min(zip(fitted, grids, strict=True), key=lambda pair: pair[0].bits)
    if spacing == _UNIFORM:
        return best
    sample = Sample.of(grid.parts, np.array(grid.ends), np.array(grid.means))
    if spacing != _AUTO:
        return _with_table(spacing, sample, grid.factors, task, math.inf) or best
    for name in TABLES:
        most = best.bits / tensor.layout.words
        found = _with_table(name, sample, grid.factors, task, most)
        if found and found.bits < _WORTHWHILE * best.bits:
            best = found
    return best


@dataclass(frozen=True, slots=True)
class _FitTask:
    """The tensor to fit a model to, and the model as far as it is known."""

    tensor: TensorView
    model: TensorModel
    epsilon: float

    @property
    def settings(self) -> FitSettings:
        return self.model.on_levels.settings

    @property
    def word_bits(self) -> int:
        return 8 * self.tensor.layout.word_bytes

    def no_counts(self, values: int) -> Counts:
        """Return counts of so many values, shape (regions, values), all 0."""
        return np.zeros((len(self.tensor.histograms), values), np.int64)

    def region_of(self, chunk: Chunk) -> int:
        return chunk.number // self.tensor.chunks_per_region


@dataclass(slots=True)
class _Grid:
    """Levels with factors or without: steps and counts as chunks come in.

    To look for a table with, ``parts`` has values of every chunk, ``means`` the root mean square
    of its words, ``ends`` the least and the greatest value.
    """

    factors: LowRank | None
    counts: Counts
    steps: list[Step] = field(default_factory=list)
    parts: list[NDArray[np.float64]] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    ends: list[tuple[float, float]] = field(default_factory=list)


def _add(grid: _Grid, chunk: Chunk, square: float, task: _FitTask) -> None:
    """Give a chunk its step, and count its equally spaced levels."""
    some = sampled(chunk)
    step = step_for(chunk, some, square, task.epsilon)
    coded = encode_chunk(chunk, step, WIDE)
    level = coded.symbols.astype(np.uint16) << np.uint16(WIDE.low_bits) | coded.low
    escapes = 8 * coded.escapes.size // task.word_bits
    row = grid.counts[task.region_of(chunk)]
    row[:-1] += kernels().histogram(level, 0, WIDE_BITS)
    row[0] -= escapes  # escapes are counted as the lowest level so far
    row[-1] += escapes
    grid.steps.append(step)
    if task.settings.spacing != _UNIFORM:
        values = _used(some)
        stride = max(1, values.size // max(1, _SAMPLE // task.tensor.chunks))
        grid.parts.append(values[::stride])
        grid.ends.append((values.min(initial=0.0), values.max(initial=0.0)))
        grid.means.append(math.sqrt(square / chunk.count))


def _used(chunk: Chunk) -> NDArray[np.float64]:
    """Return what levels have to stand for: the values that are not outliers, less predictions."""
    values = chunk.values
    used = np.isfinite(values) if chunk.outliers is None else np.isfinite(values) & ~chunk.outliers
    found = values[used].astype(np.float64)
    return found if chunk.prediction is None else found - chunk.prediction[used]


def _fitted(grid: _Grid, form: LevelForm, counts: Counts, task: _FitTask) -> BoundedFit:
    """Give a grid its frequency tables, by the counts of its symbols, and compute its size."""
    found, region, coded = frequencies.cluster(counts, task.settings.tables)
    escapes = int(counts[:, form.limit].sum())
    bits = coded + int(counts.sum()) * form.low_bits + escapes * task.word_bits
    bits += 8 * grid.factors.nbytes if grid.factors else 0
    bits += _LEVEL_BITS * form.limit if form.table is not None else 0
    return BoundedFit(form, grid.steps, grid.factors, found, region, bits)


def _with_table(
    spacing: str, sample: Sample, factors: LowRank | None, task: _FitTask, max_bits: float
) -> BoundedFit | None:
    """Return a tensor with the fewest levels found that keep the bound in every chunk.

    Chunks differ, so these may be more than keep it in the sample. None where even many levels do
    not, or where they can be expected to take more than ``max_bits`` per word.
    """
    epsilon, too_few = task.epsilon, 1
    for _ in range(_TRIES):
        form = table_form(sample, epsilon, spacing, max_bits, too_few)
        if form is None:
            return None
        found, error = _with_levels(form, sample, factors, task)
        if error <= 1:
            return found
        too_few = max(too_few + 1, form.limit)
        epsilon *= max(_SMALLEST_STRIDE, _CLOSE / error)
    return None


def _with_levels(
    form: LevelForm, sample: Sample, factors: LowRank | None, task: _FitTask
) -> tuple[BoundedFit, float]:
    """Return a tensor with a table of levels, and the largest error of a chunk by the allowed."""
    grid, worst = _Grid(factors, task.no_counts(ALPHABET)), 0.0
    chunks = chunks_of(task.tensor, task.model)
    for chunk, unit in zip(chunks, sample.units.tolist(), strict=True):
        whole = predicted(chunk, factors, task.tensor)
        step, error = table_step_for(whole, unit, task.epsilon, form)
        worst = max(worst, error)
        grid.steps.append(step)
        symbols = encode_chunk(whole, step, form).symbols
        grid.counts[task.region_of(chunk)] += np.bincount(symbols, minlength=ALPHABET)
    return _fitted(grid, form, grid.counts, task), worst
