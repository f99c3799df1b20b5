"""Tensors and pipelines for the tests of the error-bounded mode."""

import numpy as np
from numpy.typing import NDArray

from tests.support import payloads
from unweight_codecs.bounded.channel_outlier import ChannelOutlier
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.float_words import values_of, words_of_values
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.tile_svd import TileSvd
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.model import TensorModel
from unweight_codecs.payload import head as payload_head
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.tensor_spec import TensorSpec

FLOATS = ("BF16", "F16", "F32")
SIZES = {"BF16": 2, "F16": 2, "F32": 4}
# Words that are no numbers, by dtype: infinities and NaN with payloads, quiet and signalling.
NOT_FINITE = {
    "BF16": (0x7F80, 0xFF80, 0x7FC1, 0xFF85),
    "F16": (0x7C00, 0xFC00, 0x7E01, 0xFD55),
    "F32": (0x7F800000, 0xFF800000, 0x7FC00001, 0xFFA5A5A5),
}


def words_of(values: NDArray[np.floating], dtype: str) -> Bytes:
    """Return the words that values round to, which are finite."""
    return words_of_values(np.ascontiguousarray(values, np.float32).reshape(-1), dtype)


def with_specials(words: Bytes, dtype: str, number: int = 8) -> Bytes:
    """Return a copy with infinities and NaN here and there."""
    changed = words.copy().view(f"<u{SIZES[dtype]}")
    places = np.linspace(0, changed.size - 1, number).astype(int)
    changed[places] = np.resize(np.array(NOT_FINITE[dtype], changed.dtype), number)
    return changed.view(np.uint8)


def normal(shape: tuple[int, ...], seed: int, scale: float = 0.02) -> NDArray[np.float64]:
    """Return normally distributed weights."""
    return np.random.default_rng(seed).normal(0, scale, shape)


def low_rank(shape: tuple[int, int], rank: int, seed: int, rest: float) -> NDArray[np.float64]:
    """Return a matrix of low rank, with noise of ``rest`` times its size added."""
    rng = np.random.default_rng(seed)
    product = rng.normal(0, 1, (shape[0], rank)) @ rng.normal(0, 1, (rank, shape[1]))
    noise = rng.normal(0, rest * np.sqrt(rank), shape)
    return np.asarray((product + noise) * 0.01, np.float64)


def few(shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """Return weights of three distinct values that no equal steps reach."""
    return np.random.default_rng(seed).choice([-0.0713, 0.0, 0.0331], shape)


def pipeline(
    *,
    tau: float = 0,
    spacing: str = "auto",
    tables: int = 8,
    rank: int = 0,
    tile: int = 0,
    chunk_log2: int = 12,
) -> Pipeline:
    """Return an error-bounded pipeline with small chunks."""
    stages = (
        ChannelOutlier(tau),
        LevelGrid(spacing, tables),
        TileSvd(rank, tile),
        ErrorBound(),
        Pack(chunk_log2),
    )
    return pipeline_of("bounded test", stages)


def relative_errors(
    original: Bytes, decoded: Bytes, dtype: str, chunk_words: int
) -> tuple[float, list[float]]:
    """Return the relative error over all and over each chunk; what is not finite must be kept."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        before, after = (
            values_of(words, dtype).astype(np.float64) for words in (original, decoded)
        )
    finite = np.isfinite(before)
    size = SIZES[dtype]
    kept, now = (words.reshape(-1, size)[~finite] for words in (original, decoded))
    assert np.array_equal(kept, now)
    squares = np.square(np.where(finite, before, 0))
    with np.errstate(invalid="ignore"):
        errors = np.square(np.where(finite, after - before, 0))
    starts = np.arange(0, before.size, chunk_words)
    sums = zip(np.add.reduceat(errors, starts), np.add.reduceat(squares, starts), strict=True)
    return _relative(errors.sum(), squares.sum()), [_relative(*pair) for pair in sums]


def _relative(error: float, square: float) -> float:
    return float(np.sqrt(error / square)) if square else float(np.sqrt(error))


def encoded(pipe: Pipeline, spec: TensorSpec, words: Bytes, epsilon: float) -> bytes:
    """Return the payload of a tensor, coded in spans of two chunks; the bound is checked."""
    return payloads.encoded(pipe, spec, words, epsilon, span_chunks=2)


def model_of(pipe: Pipeline, spec: TensorSpec, coded: bytes) -> TensorModel:
    """Return the model that the head of a payload holds."""
    length = payload_head.peek_length(coded[:64], min(len(coded), pipe.head_limit(spec)))
    return pipe.read_head(coded[:length], spec, len(coded))[0]
