"""Kernels that do the work of several bounded stages at once give what the stages give."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.support import bounded
from unweight_codecs import fused
from unweight_codecs.bounded.low_rank import components_of, in_integers, prediction_of
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import Bytes, LowRank
from unweight_codecs.model import TensorModel
from unweight_codecs.payload import segments
from unweight_codecs.payload.directory import parse_directory
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.span import Span
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec

CHUNK = 4096
COLUMNS = 64
# One chunk, pairs of chunks, one left over, and ends of other lengths.
ROWS = (20, 64, 96, 128, 160, 192, 249)
PIPELINES = {
    "no low bits": (0.2, bounded.pipeline(spacing="uniform")),
    "low bits": (0.002, bounded.pipeline(spacing="uniform")),
    "a table": (0.15, bounded.pipeline(spacing="lloyd")),
    "factors": (0.02, bounded.pipeline(rank=4, tile=70)),
    "outliers": (0.02, bounded.pipeline(tau=2)),
}
dtypes = pytest.mark.parametrize("dtype", bounded.FLOATS)
pipelines = pytest.mark.parametrize("name", PIPELINES)


@pytest.fixture
def native(native_kernel: NativeKernels, use_kernel: Callable[[str], None]) -> NativeKernels:
    """Return the kernels of an instruction set, which the pipeline uses, too."""
    use_kernel(native_kernel.name)
    return native_kernel


def weights(dtype: str, rows: int) -> Bytes:
    """Return a matrix of low rank, under noise, with words that are no numbers."""
    values = bounded.low_rank((rows, COLUMNS), 3, rows, 0.05)
    return bounded.with_specials(bounded.words_of(values, dtype), dtype, 5)


def coded(pipe: Pipeline, epsilon: float, dtype: str, words: Bytes) -> tuple[Span, TensorModel]:
    """Encode all words as one span; the model is the one that a decoder has."""
    size = bounded.SIZES[dtype]
    spec = TensorSpec("t", dtype, (words.size // size // COLUMNS, COLUMNS))
    view, _ = survey(
        spec, lambda at, n: words[size * at : size * (at + n)], CHUNK, lambda piece: None
    )
    model = pipe.fit(view, epsilon)
    span = Span(0, words.size // size, words)
    pipe.encode(span, model)
    return span, pipe.as_decoded(model)


def by_stages(pipe: Pipeline, span: Span, model: TensorModel) -> Bytes:
    """Decode stage by stage, without fused kernels and without a look at checksums."""
    empty = span.copy_empty()
    for stage in pipe.stages:
        stage.prepare(empty, model)
    located = parse_directory(empty, model)
    for k, (stream, bits) in enumerate(model.streams().items()):
        segments.decode_stream(empty, model, stream, bits, located[:, k])
    for stage in reversed(pipe.stages[:-1]):
        stage.decode(empty, model)
    return empty.words


def at_once(pipe: Pipeline, span: Span, model: TensorModel, kernel: NativeKernels) -> Bytes:
    empty = span.copy_empty()
    for stage in pipe.stages:
        stage.prepare(empty, model)
    assert fused.decode_levels(empty, model, parse_directory(empty, model), kernel)
    return empty.words


@pytest.mark.parametrize("rows", ROWS)
@pipelines
@dtypes
def test_words_straight_from_coded_chunks(
    native: NativeKernels, dtype: str, name: str, rows: int
) -> None:
    epsilon, pipe = PIPELINES[name]
    span, model = coded(pipe, epsilon, dtype, weights(dtype, rows))
    assert np.array_equal(at_once(pipe, span, model, native), by_stages(pipe, span, model))


def test_the_pipelines_have_what_their_names_say() -> None:
    found = {
        name: coded(pipe, epsilon, "F32", weights("F32", 249))[1].on_levels
        for name, (epsilon, pipe) in PIPELINES.items()
    }
    assert {name for name, each in found.items() if each.form.low_bits} >= {"low bits"}
    assert not found["no low bits"].form.low_bits
    assert found["a table"].form.table is not None
    assert found["factors"].factors is not None


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_streams_that_are_coded_in_another_way_are_left_to_the_stages(
    each_kernel: str, constant: float
) -> None:
    values = bounded.normal((160, COLUMNS), 0)
    values.reshape(-1)[CHUNK : 2 * CHUNK] = constant
    pipe = bounded.pipeline()
    span, model = coded(pipe, 0.01, "BF16", bounded.words_of(values, "BF16"))
    empty = span.copy_empty()
    pipe.decode(empty, model)
    assert np.array_equal(empty.words, by_stages(pipe, span, model))


@pipelines
@dtypes
def test_damage_has_the_same_outcome_as_in_the_stages(
    native: NativeKernels, dtype: str, name: str
) -> None:
    """Behind a checksum made to fit, a damaged chunk fails or means the same everywhere."""
    epsilon, pipe = PIPELINES[name]
    span, model = coded(pipe, epsilon, dtype, weights(dtype, 160))
    undamaged = span.coded
    for flip in np.random.default_rng(1).integers(0, undamaged.size * 8, 150).tolist():
        span.coded = undamaged.copy()
        span.coded[flip // 8] ^= 1 << flip % 8
        found = outcome(lambda: at_once(pipe, span, model, native))
        assert found == outcome(lambda: by_stages(pipe, span, model)), flip


def outcome(decode: Callable[[], Bytes]) -> bytes | None:
    """Return decoded bytes; None for damage that was noticed."""
    try:
        return decode().tobytes()
    except IntegrityError:
        return None


@pytest.mark.parametrize("tile", [(200, 1300), (64, 1300), (200, 33), (7, 1100), (1, 1)])
@pytest.mark.parametrize("rank", [1, 3, 16])
def test_predictions_of_factors(
    use_kernel: Callable[[str], None], kernels: list[str], rank: int, tile: tuple[int, int]
) -> None:
    """From any word on, the same sums of integers, rounded in the same way."""
    factors = factors_of((200, 1300), tile, rank)
    for first, count in ((0, 200 * 1300), (1299, 2), (1, 5000), (77_777, 1), (259_999, 1)):
        found = set()
        for kernel in kernels:
            use_kernel(kernel)
            found.add(prediction_of(factors, first, count, 1300).tobytes())
        assert len(found) == 1, (first, count)


def test_predictions_are_sums_of_products() -> None:
    factors = factors_of((6, 5), (4, 3), 2)
    found = prediction_of(factors, 0, 30, 5).reshape(6, 5)
    for i in range(6):
        for j in range(5):
            a, b = i // 4, j // 3
            weights = factors.weights[a, b].astype(int)
            total = (weights * factors.left[i, b] * factors.right[a, :, j]).sum()
            assert found[i, j] == np.float32(total) * factors.scale


def factors_of(shape: tuple[int, int], tile: tuple[int, int], rank: int) -> LowRank:
    rng = np.random.default_rng(rank)
    down, across = -(-shape[0] // tile[0]), -(-shape[1] // tile[1])
    return LowRank(
        tile,
        np.float32(0.0123),
        rng.integers(0, 513, (down, across, rank)).astype(np.uint16),
        rng.integers(-128, 128, (shape[0], across, rank)).astype(np.int8),
        rng.integers(-128, 128, (down, rank, shape[1])).astype(np.int8),
    )


@pytest.mark.parametrize("tile", [(60, 80), (25, 80), (60, 30), (13, 17)])
def test_factors_come_near_a_matrix_of_their_rank(each_kernel: str, tile: tuple[int, int]) -> None:
    matrix = bounded.low_rank((60, 80), 3, 0, 0.0).astype(np.float32)
    components = components_of(matrix, tile, 5)
    for rank, largest in ((1, 1.0), (3, 0.02), (5, 0.02)):
        factors = in_integers(components, rank)
        assert factors is not None
        rest = matrix - prediction_of(factors, 0, 4800, 80).reshape(60, 80)
        assert np.linalg.norm(rest) < largest * np.linalg.norm(matrix)


def test_matrices_of_zeros_have_no_factors() -> None:
    assert in_integers(components_of(np.zeros((40, 50), np.float32), (40, 50), 2), 2) is None
