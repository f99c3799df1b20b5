"""From the error bound to a step for every chunk."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.chunks import ESCAPE_ALL, Chunk, Step, encode_chunk, error_of, sampled
from unweight_codecs.bounded.level_tables import TABLE_UNIT
from unweight_codecs.bounded.levels import MAX_STEP, MIN_STEP, QuantisedWords
from unweight_codecs.bounded.uniform_levels import WIDE
from unweight_codecs.kernels.operands import LevelForm

_MARGIN: Final = 1 - 1e-9  # of the squared error, for sums that another program adds up otherwise
_CLOSE: Final = 0.995  # a squared error of so much of what is allowed is not worth another try
_MANTISSA_BITS: Final = {"BF16": 7, "F16": 10}  # of the dtypes whose words lie far apart
_UNIT: Final = math.sqrt(12)  # equally spaced levels have an error of step / sqrt(12)
_TRIES: Final = 6
_FITS: Final = 3


def step_for(chunk: Chunk, sample: Chunk, square: float, epsilon: float) -> Step:
    """Return the largest step found that keeps a chunk's relative error at or below ``epsilon``.

    Levels are equally spaced. ``sample`` has some of the chunk's words to try steps on, ``square``
    is the chunk's sum of squares. Where even small steps fail, the answer is ``ESCAPE_ALL``: all
    words escape.
    """
    if square == 0:
        return Step.of(1)
    size = _refined(sample, _UNIT * epsilon * math.sqrt(square / chunk.count), epsilon)
    for _ in range(_TRIES):
        size = _without_ties(size, chunk.dtype)
        if not MIN_STEP <= size <= MAX_STEP:
            return ESCAPE_ALL
        allowed = epsilon * epsilon * square * _MARGIN
        for step in (_fitted(sample, Step.of(size), WIDE), Step.of(size)):
            _, error = error_of(chunk, step, WIDE)
            if error <= allowed:
                return step
        size *= min(0.9995, math.sqrt(allowed / error))
    return ESCAPE_ALL


def table_step_for(
    chunk: Chunk, unit: float, epsilon: float, form: LevelForm
) -> tuple[Step, float]:
    """Return the step with which a table of levels fits a chunk best, and how far its error goes.

    ``unit`` is what ``TABLE_UNIT`` levels should about be worth. The error is relative to
    ``epsilon``: above 1 it breaks the bound.
    """
    step, sample = Step.of(unit / TABLE_UNIT or 1), sampled(chunk)
    for _ in range(_FITS):
        step = Step.of(float(_fitted(sample, step, form).value))
    if not MIN_STEP <= step.size <= MAX_STEP:
        return step, math.inf
    square, error = error_of(chunk, step, form)
    allowed = epsilon * math.sqrt(square * _MARGIN)
    if error == 0:
        return step, 0.0
    return step, math.sqrt(error) / allowed if allowed else math.inf


def _fitted(chunk: Chunk, step: Step, form: LevelForm) -> Step:
    """Return the step with the value that fits the words best, by least squares.

    Words come from a lattice of their own, and where that meets the grid at a bad angle, rounding
    goes more often one way than the other: all words would shrink, or all grow.
    """
    levels = _levels_of(encode_chunk(chunk, step, form), form)
    with np.errstate(invalid="ignore"):  # signalling NaN
        rest = chunk.values if chunk.prediction is None else chunk.values - chunk.prediction
    # Sums of products and not BLAS: its threads cost more than such short vectors take.
    weight = float(np.square(levels).sum())
    if not weight:
        return step
    value = float((levels * np.where(levels == 0, 0, rest)).sum()) / weight
    return Step(step.size, np.float32(value)) if MIN_STEP <= value <= MAX_STEP else step


def _levels_of(coded: QuantisedWords, form: LevelForm) -> NDArray[np.float64]:
    """Return the level of every word, 0 where it escapes."""
    if form.table is not None:
        return np.append(form.table, 0).astype(np.float64)[coded.symbols]
    levels = coded.symbols.astype(np.float64) * (1 << form.low_bits) - form.bias
    if form.low_bits:
        levels += coded.low
    levels[coded.symbols == form.limit] = 0
    return levels


def _without_ties(size: float, dtype: str) -> float:
    """Keep clear of the steps that put many words half-way between two levels.

    In each octave, 16-bit words are multiples of a power of two. With a step just above or below a
    power of two, those of a whole octave lie near the middle between levels and are all rounded
    the same way. The power itself is good: then they lie exactly there, and go to the even level.
    """
    if dtype not in _MANTISSA_BITS or not size > 0:
        return size
    margin = 2.0 ** (1 - _MANTISSA_BITS[dtype])
    fraction, exponent = math.frexp(size)  # from 0.5 up to 1
    power = math.ldexp(0.5, exponent)
    if fraction < 0.5 * (1 + margin):
        return power
    return min(size, 2 * power * (1 - margin))


def _refined(sample: Chunk, size: float, epsilon: float) -> float:
    """Bring the error on a sample just below the bound, which rounding to the dtype changes."""
    best = 0.0
    for _ in range(_TRIES):
        if not MIN_STEP <= size <= MAX_STEP:
            break
        square, error = error_of(sample, Step.of(size), WIDE)
        share = error / (epsilon * epsilon * square) if square else 1.0
        best = max(best, size) if share <= 1 else best
        if _CLOSE <= share <= 1:
            break
        size *= min(2.0, math.sqrt((1 + _CLOSE) / 2 / max(share, 0.05)))
    return best or size
