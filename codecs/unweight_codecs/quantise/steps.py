"""From the error bound to a step for every chunk."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import Model, TensorView
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.base import Bytes, LevelForm
from unweight_codecs.quantise.levels import (
    LARGEST_STEP,
    SMALLEST_STEP,
    Quantised,
    dequantise,
    escapes_of,
    quantise,
    squared_error,
)
from unweight_codecs.quantise.low_rank import prediction_of
from unweight_codecs.quantise.values import Values, values_of

MARGIN: Final = 1 - 1e-9  # of the squared error, for sums that another program adds up otherwise
_CLOSE: Final = 0.995  # a squared error of so much of what is allowed is not worth another try
_MANTISSA_BITS: Final = {"BF16": 7, "F16": 10}  # of the dtypes whose words lie far apart
_LARGE_F16: Final = 0x7800  # the bits of 32768
_TRIES: Final = 6
_SAMPLE: Final = 1 << 15  # words of a chunk that tries look at


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as the encoder sees it: words, which of them to keep, and what is predicted."""

    number: int
    dtype: str
    words: Bytes
    count: int
    kept: NDArray[np.bool_] | None
    prediction: Values | None

    @property
    def values(self) -> Values:
        """The words as float32."""
        return values_of(self.words, self.dtype)


@dataclass(frozen=True, slots=True)
class Step:
    """How far levels are apart for the encoder, and what a level is worth to the decoder."""

    size: np.float32
    value: np.float32

    @classmethod
    def of(cls, size: float) -> Self:
        """Return a step that is worth what it is wide."""
        return cls(np.float32(size), np.float32(size))


KEEP: Final = Step.of(0)  # keeps all words of a chunk as they are


def chunks_of(tensor: TensorView, model: Model) -> Iterator[Chunk]:
    """Yield the chunks of a tensor, one at a time."""
    for number in range(tensor.chunks):
        first = number * tensor.chunk_words
        count = min(tensor.chunk_words, tensor.layout.words - first)
        prediction = None
        if model.low_rank is not None:
            prediction = prediction_of(model.low_rank, first, count, model.layout.columns)
        yield chunk_of(tensor.read(first, count), number, model, prediction)


def chunk_of(words: Bytes, number: int, model: Model, prediction: Values | None) -> Chunk:
    """Return a chunk with its outliers marked."""
    first, dtype = number * model.chunk_words, model.spec.dtype
    count = words.size // model.layout.word_bytes
    kept = None
    if model.row_deviations is not None:
        rows = np.arange(first, first + count) // model.layout.columns
        with np.errstate(over="ignore"):  # nothing is beyond an infinite limit
            limits = model.tau * model.row_deviations
        kept = np.abs(values_of(words, dtype)) > limits[rows]
    return Chunk(number, dtype, words, count, kept, prediction)


def encode_chunk(chunk: Chunk, step: Step, form: LevelForm) -> Quantised:
    """Put a chunk on the grid.

    Words whose decoded value would not be finite are kept, too.
    """
    if step == KEEP:
        symbols = np.full(chunk.count, form.limit, np.uint8)
        low = np.zeros(chunk.count if form.low_bits else 0, np.uint8)
        return Quantised(symbols, low, chunk.words)
    symbols, low = quantise(chunk.words, chunk.dtype, chunk.kept, step.size, form, chunk.prediction)
    if chunk.dtype == "F16" and _is_near_the_end(chunk.words):
        decoded = values_of(_decoded(chunk, symbols, low, step.value, form), chunk.dtype)
        symbols[~np.isfinite(decoded)] = form.limit
        low[symbols[: low.size] == form.limit] = 0  # as all kept words have it
    return Quantised(symbols, low, escapes_of(chunk.words, symbols, form))


def _is_near_the_end(halves: Bytes) -> bool:
    """Whether some F16 is so large that its decoded value may be infinite."""
    return bool((halves.view("<u2") & np.uint16(0x7FFF)).max(initial=0) >= _LARGE_F16)


def _decoded(chunk: Chunk, symbols: Bytes, low: Bytes, step: np.float32, form: LevelForm) -> Bytes:
    words = buffers.empty(chunk.words.size)
    escapes = escapes_of(chunk.words, symbols, form)
    dequantise(symbols, low, escapes, step, form, chunk.dtype, chunk.prediction, words)
    return words


def error_of(chunk: Chunk, step: Step, form: LevelForm) -> tuple[float, float]:
    """Return the sums of squares of a chunk and of its error with a step."""
    coded = encode_chunk(chunk, step, form)
    words = _decoded(chunk, coded.symbols, coded.low, step.value, form)
    square, error, _ = squared_error(chunk.words, words, chunk.dtype)
    return square, error


def step_for(chunk: Chunk, epsilon: float, form: LevelForm, unit: float) -> Step:
    """Return the largest step found that keeps a chunk's relative error at or below ``epsilon``.

    ``unit`` is the step that gives an error of 1. Where even small steps fail, the answer is
    ``KEEP``: all words are kept. Levels of ``form`` are equally spaced.
    """
    square, _, _ = squared_error(chunk.words, chunk.words, chunk.dtype)
    if square == 0:
        return Step.of(1)
    first = unit * epsilon * math.sqrt(square / chunk.count)
    sample = _sampled(chunk)
    size = _refined(sample, first, epsilon, form)
    for _ in range(_TRIES):
        size = _without_ties(size, chunk.dtype)
        if not SMALLEST_STEP <= size <= LARGEST_STEP:
            return KEEP
        allowed = epsilon * epsilon * square * MARGIN
        for step in (_fitted(sample, Step.of(size), form), Step.of(size)):
            _, error = error_of(chunk, step, form)
            if error <= allowed:
                return step
        size *= min(0.9995, math.sqrt(allowed / error))
    return KEEP


def _fitted(chunk: Chunk, step: Step, form: LevelForm) -> Step:
    """Return the step with the value that fits the words best, by least squares.

    Words come from a lattice of their own, and where that meets the grid at a bad angle, rounding
    goes more often one way than the other: all words would shrink, or all grow.
    """
    coded = encode_chunk(chunk, step, form)
    levels = coded.symbols.astype(np.float64) * (1 << form.low_bits) - form.bias
    if form.low_bits:
        levels += coded.low
    levels[coded.symbols == form.limit] = 0
    with np.errstate(invalid="ignore"):  # signalling NaN
        rest = chunk.values if chunk.prediction is None else chunk.values - chunk.prediction
    # Sums of products and not BLAS: its threads cost more than such short vectors take.
    weight = float(np.square(levels).sum())
    if not weight:
        return step
    value = float((levels * np.where(levels == 0, 0, rest)).sum()) / weight
    return Step(step.size, np.float32(value)) if SMALLEST_STEP <= value <= LARGEST_STEP else step


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


def _refined(sample: Chunk, size: float, epsilon: float, form: LevelForm) -> float:
    """Bring the error on a sample just below the bound, which rounding to the dtype changes."""
    best = 0.0
    for _ in range(_TRIES):
        if not SMALLEST_STEP <= size <= LARGEST_STEP:
            break
        square, error = error_of(sample, Step.of(size), form)
        share = error / (epsilon * epsilon * square) if square else 1.0
        best = max(best, size) if share <= 1 else best
        if _CLOSE <= share <= 1:
            break
        size *= min(2.0, math.sqrt((1 + _CLOSE) / 2 / max(share, 0.05)))
    return best or size


def _sampled(chunk: Chunk) -> Chunk:
    stride = max(1, chunk.count // _SAMPLE) | 1  # odd: rows often have a power of two
    if stride == 1:
        return chunk
    words = chunk.words.reshape(chunk.count, -1)[::stride]

    def part(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else np.ascontiguousarray(values[::stride])

    return Chunk(
        chunk.number,
        chunk.dtype,
        np.ascontiguousarray(words).reshape(-1),
        len(words),
        part(chunk.kept),
        part(chunk.prediction),
    )
