"""Chunks as the encoder sees them, and what putting them on a grid makes of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.float_words import Values, values_of
from unweight_codecs.bounded.levels import (
    QuantisedWords,
    dequantise,
    escapes_of,
    quantise,
    squared_error,
)
from unweight_codecs.bounded.low_rank import prediction_of
from unweight_codecs.codec import TensorView
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import Bytes, LevelForm, LowRank
from unweight_codecs.model import TensorModel

_LARGE_F16: Final = 0x7800  # the bits of 32768
_SAMPLE: Final = 1 << 15  # words of a chunk that tries look at


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as the encoder sees it: words, which of them are outliers, and what is predicted."""

    number: int
    dtype: str
    words: Bytes
    count: int
    outliers: NDArray[np.bool_] | None
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


ESCAPE_ALL: Final = Step.of(0)  # of a chunk whose words are all stored as they are


def chunks_of(tensor: TensorView, model: TensorModel) -> Iterator[Chunk]:
    """Yield the chunks of a tensor, one at a time, without predictions."""
    for number in range(tensor.chunks):
        first = number * tensor.chunk_words
        count = min(tensor.chunk_words, tensor.layout.words - first)
        yield chunk_of(tensor.read(first, count), number, model, None)


def chunk_of(words: Bytes, number: int, model: TensorModel, prediction: Values | None) -> Chunk:
    """Return a chunk with its outliers marked."""
    settings = model.on_levels.settings
    first, dtype = number * model.chunk_words, model.spec.dtype
    count = words.size // model.layout.word_bytes
    outliers = None
    if settings.row_deviations is not None:
        rows = np.arange(first, first + count) // model.layout.columns
        with np.errstate(over="ignore"):  # nothing is beyond an infinite limit
            limits = settings.tau * settings.row_deviations
        outliers = np.abs(values_of(words, dtype)) > limits[rows]
    return Chunk(number, dtype, words, count, outliers, prediction)


def predicted(chunk: Chunk, factors: LowRank | None, tensor: TensorView) -> Chunk:
    """Return the chunk with what the factors of the tensor predict for it."""
    if factors is None:
        return chunk
    first, columns = chunk.number * tensor.chunk_words, tensor.layout.columns
    return replace(chunk, prediction=prediction_of(factors, first, chunk.count, columns))


def square_of(chunk: Chunk) -> float:
    """Return the sum of squares of the words that are numbers."""
    return squared_error(chunk.words, chunk.words, chunk.dtype)[0]


def sampled(chunk: Chunk) -> Chunk:
    """Return a chunk of some of its words."""
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
        part(chunk.outliers),
        part(chunk.prediction),
    )


def encode_chunk(chunk: Chunk, step: Step, form: LevelForm) -> QuantisedWords:
    """Put a chunk on the grid.

    Words whose decoded value would not be finite escape, too.
    """
    if step == ESCAPE_ALL:
        symbols = np.full(chunk.count, form.limit, np.uint8)
        low = np.zeros(chunk.count if form.low_bits else 0, np.uint8)
        return QuantisedWords(symbols, low, chunk.words)
    symbols, low = quantise(
        chunk.words, chunk.dtype, chunk.outliers, step.size, form, chunk.prediction
    )
    coded = QuantisedWords(symbols, low, escapes_of(chunk.words, symbols, form))
    if chunk.dtype == "F16" and _is_near_the_end(chunk.words):
        decoded = values_of(_decoded(chunk, coded, step, form), chunk.dtype)
        symbols[~np.isfinite(decoded)] = form.limit
        low[symbols[: low.size] == form.limit] = 0  # as all escapes have it
        return QuantisedWords(symbols, low, escapes_of(chunk.words, symbols, form))
    return coded


def _is_near_the_end(halves: Bytes) -> bool:
    """Whether some F16 is so large that its decoded value may be infinite."""
    return bool((halves.view("<u2") & np.uint16(0x7FFF)).max(initial=0) >= _LARGE_F16)


def _decoded(chunk: Chunk, coded: QuantisedWords, step: Step, form: LevelForm) -> Bytes:
    words = buffers.empty(chunk.words.size)
    dequantise(
        coded.symbols,
        coded.low,
        coded.escapes,
        step.value,
        form,
        chunk.dtype,
        chunk.prediction,
        words,
    )
    return words


def error_of(chunk: Chunk, step: Step, form: LevelForm) -> tuple[float, float]:
    """Return the sums of squares of a chunk and of its error with a step."""
    coded = encode_chunk(chunk, step, form)
    words = _decoded(chunk, coded, step, form)
    square, error, _ = squared_error(chunk.words, words, chunk.dtype)
    return square, error
