"""The suite every error-bounded pipeline passes: within the bound, everywhere, for any weights."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support import bounded
from tests.support.reference_run import one_in
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.float_words import values_of
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.model import TensorModel
from unweight_codecs.pipeline import Pipeline, pipeline_from_dict, pipeline_of
from unweight_codecs.presets import BOUNDED, PRESETS
from unweight_codecs.span import CheckResult, Span
from unweight_codecs.tensor_spec import TensorSpec

Decode = Callable[[Pipeline, TensorSpec, bytes], bytes]
ROWS, COLUMNS = 150, 64  # chunks of about 4096: two
SHAPE = (ROWS, COLUMNS)

PIPELINES = BOUNDED | {
    "uniform": bounded.pipeline(spacing="uniform", tables=1),
    "cdf": bounded.pipeline(spacing="cdf"),
    "lloyd": bounded.pipeline(spacing="lloyd", tables=64),
    "outliers": bounded.pipeline(tau=2.5),
    "low rank": bounded.pipeline(rank=4),
    "tiles": bounded.pipeline(tau=3, rank=2, tile=40),
}
pipelines = pytest.mark.parametrize("pipe", PIPELINES.values(), ids=PIPELINES.keys())
dtypes = pytest.mark.parametrize("dtype", bounded.FLOATS)


def row_scales(octaves: float) -> NDArray[np.float64]:
    return np.exp2(np.random.default_rng(1).uniform(-octaves, 0, (ROWS, 1)))


def sparse() -> NDArray[np.float64]:
    values = np.zeros(SHAPE)
    values[3, 5], values[149, 63] = 1.5, -0.25
    return values


def heavy_tails() -> NDArray[np.float64]:
    return np.random.default_rng(2).standard_t(2, SHAPE) * 0.01


WEIGHTS: dict[str, Callable[[], NDArray[np.float64]]] = {
    "normal": lambda: bounded.normal(SHAPE, 0),
    "rows of many scales": lambda: bounded.normal(SHAPE, 1) * row_scales(12),
    "heavy tails": heavy_tails,
    "zeros": lambda: np.zeros(SHAPE),
    "negative zeros": lambda: np.zeros(SHAPE) * -1.0,
    "constant": lambda: np.full(SHAPE, 0.1234),
    "sparse": sparse,
    "few values": lambda: bounded.few(SHAPE, 3),
    "low rank": lambda: bounded.low_rank(SHAPE, 2, 4, 0.01),
    "one row": lambda: np.where(np.arange(ROWS)[:, None] == 7, 0.5, 0.0) * bounded.normal(SHAPE, 5),
    "chunks of zeros and weights": lambda: np.where(
        np.arange(ROWS)[:, None] < 75, 0.0, bounded.normal(SHAPE, 6)
    ),
    "subnormal in every dtype": lambda: bounded.normal(SHAPE, 7, 1e-39),
    "near the end of F16": lambda: bounded.normal(SHAPE, 8, 20_000).clip(-65_504, 65_504),
    "near the end of F32": lambda: bounded.normal(SHAPE, 9, 1e38).clip(-3e38, 3e38),
    "very small": lambda: bounded.normal(SHAPE, 10, 1e-29),
    "very large": lambda: bounded.normal(SHAPE, 11, 1e30),
}


def words_of(name: str, dtype: str) -> Bytes:
    largest = {"F16": 65_504, "BF16": 3.3e38, "F32": 3.4e38}[dtype]
    return bounded.words_of(WEIGHTS[name]().clip(-largest, largest), dtype)


def within(pipe: Pipeline, words: Bytes, dtype: str, epsilon: float, decode: Decode) -> bytes:
    """Check that a tensor is decoded to within the bound; returns the payload."""
    spec = TensorSpec("t", dtype, SHAPE)
    coded = bounded.encoded(pipe, spec, words, epsilon)
    decoded = np.frombuffer(decode(pipe, spec, coded), np.uint8)
    chunk_words = bounded.model_of(pipe, spec, coded).chunk_words
    whole, chunks = bounded.relative_errors(words, decoded, dtype, chunk_words)
    assert whole <= epsilon
    assert max(chunks) <= epsilon
    return coded


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0])
@pytest.mark.parametrize(
    ("pipe", "dtype", "weights"),
    [
        # The NumPy reference has two weights of each pair, the next pair has the next ones.
        pytest.param(
            pipe,
            dtype,
            weights,
            id=f"{name}-{dtype}-{weights}",
            marks=one_in(len(WEIGHTS) // 2, row + column),
        )
        for column, (name, pipe, dtype) in enumerate(
            (name, pipe, dtype) for name, pipe in PIPELINES.items() for dtype in bounded.FLOATS
        )
        for row, weights in enumerate(WEIGHTS)
    ],
)
def test_within_the_bound(
    decode_payload: Decode, pipe: Pipeline, dtype: str, weights: str, epsilon: float
) -> None:
    within(pipe, words_of(weights, dtype), dtype, epsilon, decode_payload)


@pytest.mark.parametrize("weights", ["normal", "few values", "low rank", "zeros"])
@dtypes
@pipelines
def test_what_is_no_number_survives(
    each_kernel: str, decode_payload: Decode, pipe: Pipeline, dtype: str, weights: str
) -> None:
    words = bounded.with_specials(words_of(weights, dtype), dtype, 40)
    within(pipe, words, dtype, 0.05, decode_payload)


@dtypes
@pipelines
def test_nothing_but_what_is_no_number(decode_payload: Decode, pipe: Pipeline, dtype: str) -> None:
    words = bounded.words_of(np.zeros(SHAPE), dtype)
    words = bounded.with_specials(words, dtype, ROWS * COLUMNS)
    assert not np.isfinite(values_of(words, dtype)).any()
    within(pipe, words, dtype, 0.05, decode_payload)


@dtypes
@pipelines
def test_all_bits_at_random(decode_payload: Decode, pipe: Pipeline, dtype: str) -> None:
    size = ROWS * COLUMNS * bounded.SIZES[dtype]
    words = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    within(pipe, words, dtype, 0.02, decode_payload)


@pytest.mark.parametrize("shape", [(1, 4096), (4096, 1), (3, 5), (2, 3, 700), (33, 127), (1, 1)])
@dtypes
@pipelines
def test_shapes(decode_payload: Decode, pipe: Pipeline, dtype: str, shape: tuple[int, ...]) -> None:
    words = bounded.words_of(bounded.normal(shape, 0), dtype)
    spec = TensorSpec("t", dtype, shape)
    decoded = decode_payload(pipe, spec, bounded.encoded(pipe, spec, words, 0.01))
    whole, _ = bounded.relative_errors(words, np.frombuffer(decoded, np.uint8), dtype, words.size)
    assert whole <= 0.01


@dtypes
@pipelines
def test_kernels_decode_to_the_same_bits(
    use_kernel: Callable[[str], None],
    kernels: list[str],
    decode_payload: Decode,
    pipe: Pipeline,
    dtype: str,
) -> None:
    """Whatever kernel has encoded."""
    words = bounded.with_specials(words_of("low rank", dtype), dtype)
    spec = TensorSpec("t", dtype, SHAPE)
    for encoder in {kernels[0], "reference"}:
        use_kernel(encoder)
        coded = bounded.encoded(pipe, spec, words, 0.02)
        decoded = set()
        for kernel in kernels:
            use_kernel(kernel)
            decoded.add(decode_payload(pipe, spec, coded))
        assert len(decoded) == 1


@pytest.mark.parametrize("weights", ["normal", "rows of many scales", "heavy tails"])
@dtypes
def test_weights_take_fewer_bits_the_larger_the_error(
    decode_payload: Decode, dtype: str, weights: str
) -> None:
    words, pipe = words_of(weights, dtype), PIPELINES["default"]
    sizes = [
        len(within(pipe, words, dtype, epsilon, decode_payload))
        for epsilon in (0.001, 0.004, 0.016, 0.064, 0.25)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.25 * words.size


def test_normal_weights_take_the_bits_that_theory_expects(decode_payload: Decode) -> None:
    """A uniform grid with entropy coding: 0.2546 bits above the Shannon bound, log2(1 / eps)."""
    words = bounded.words_of(bounded.normal((512, 1024), 0), "F32")
    spec = TensorSpec("t", "F32", (512, 1024))
    for epsilon in (0.0054, 0.086):
        coded = bounded.encoded(BOUNDED["default"], spec, words, epsilon)
        rate = 8 * len(coded) / spec.elements
        assert 0 < rate - np.log2(1 / epsilon) < 0.2546 + 0.03


@dtypes
def test_few_values_get_a_table_of_levels(decode_payload: Decode, dtype: str) -> None:
    values = bounded.few((64, 60), 0)  # one chunk
    words, spec = bounded.words_of(values, dtype), TensorSpec("t", dtype, (64, 60))
    sizes = {}
    for spacing in ("uniform", "auto"):
        pipe = bounded.pipeline(spacing=spacing)
        coded = bounded.encoded(pipe, spec, words, 0.001)
        sizes[spacing] = len(coded)
        form = bounded.model_of(pipe, spec, coded).on_levels.form
        assert (form.table is None) == (spacing == "uniform")
        assert decode_payload(pipe, spec, coded)
    assert sizes["auto"] < 0.9 * sizes["uniform"]


@pytest.mark.parametrize("rare", [0.1, 0.0007])
@dtypes
def test_few_values_are_found_whatever_the_scale_of_a_chunk(
    each_kernel: str, dtype: str, rare: float
) -> None:
    """A row of five values times a scale of its own, which is a chunk."""
    rng = np.random.default_rng(6)
    shares = [rare, 0.3, 0.7 - 3 * rare, 0.3, rare]
    shares = [share / sum(shares) for share in shares]
    values = rng.choice([-2.0, -1, 0, 1, 2], (20, 4096), p=shares)
    values *= np.exp(rng.normal(0, 1, (20, 1))) * 0.01
    words, spec = bounded.words_of(values, dtype), TensorSpec("t", dtype, values.shape)
    for spacing in ("auto", "lloyd"):
        pipe = bounded.pipeline(spacing=spacing)
        coded = bounded.encoded(pipe, spec, words, 0.002)
        form = bounded.model_of(pipe, spec, coded).on_levels.form
        assert form.table is not None
        assert form.limit == 5
        used = [share for share in shares if share]
        entropy = -sum(share * np.log2(share) for share in used)
        assert 8 * len(coded) / spec.elements < entropy + 0.4  # lane states of short chunks


@pytest.mark.parametrize("spacing", ["cdf", "lloyd"])
def test_a_table_that_was_asked_for_has_levels_enough_for_every_chunk(spacing: str) -> None:
    """More than the sample needs: the chunks are of different kinds."""
    even = np.random.default_rng(3).uniform(-0.02, 0.02, (192, 64))
    values = np.concatenate([even, bounded.normal((64, 64), 1)])
    words, spec = bounded.words_of(values, "F32"), TensorSpec("t", "F32", values.shape)
    pipe = bounded.pipeline(spacing=spacing)
    coded = bounded.encoded(pipe, spec, words, 0.2)
    assert bounded.model_of(pipe, spec, coded).on_levels.form.table is not None


def test_where_no_table_keeps_the_bound_levels_are_equally_spaced() -> None:
    pipe, spec = bounded.pipeline(spacing="lloyd"), TensorSpec("t", "F32", SHAPE)
    coded = bounded.encoded(pipe, spec, words_of("normal", "F32"), 0.001)
    assert bounded.model_of(pipe, spec, coded).on_levels.form.table is None


def test_normal_weights_get_equally_spaced_levels() -> None:
    spec = TensorSpec("t", "F32", SHAPE)
    coded = bounded.encoded(PIPELINES["default"], spec, words_of("normal", "F32"), 0.02)
    assert bounded.model_of(PIPELINES["default"], spec, coded).on_levels.form.table is None


@dtypes
def test_matrices_of_low_rank_get_factors_that_pay(decode_payload: Decode, dtype: str) -> None:
    words, sizes = bounded.words_of(bounded.low_rank(SHAPE, 2, 4, 0.01), dtype), {}
    for rank in (0, 4):
        pipe = bounded.pipeline(rank=rank)
        coded = within(pipe, words, dtype, 0.02, decode_payload)
        found = bounded.model_of(pipe, TensorSpec("t", dtype, SHAPE), coded).on_levels.factors
        assert (found is not None) == bool(rank)
        sizes[rank] = len(coded)
    assert sizes[4] < 0.7 * sizes[0]


@pytest.mark.parametrize("tile", [0, 50])
def test_normal_weights_get_no_factors(decode_payload: Decode, tile: int) -> None:
    pipe = bounded.pipeline(rank=8, tile=tile)
    coded = within(pipe, words_of("normal", "F32"), "F32", 0.02, decode_payload)
    assert bounded.model_of(pipe, TensorSpec("t", "F32", SHAPE), coded).on_levels.factors is None


def test_factors_are_not_more_than_a_reader_accepts() -> None:
    """A wide, low matrix of high rank has nearly as many factors as weights."""
    shape = (32, 40_000)
    words = bounded.words_of(bounded.low_rank(shape, 16, 0, 0.001), "F32")
    spec, pipe = TensorSpec("t", "F32", shape), bounded.pipeline(rank=16, chunk_log2=17)
    coded = bounded.encoded(pipe, spec, words, 0.001)
    bounded.model_of(pipe, spec, coded)


@pytest.mark.parametrize("tau", [1.5, 3])
@dtypes
def test_words_beyond_tau_deviations_of_their_row_are_kept(
    decode_payload: Decode, dtype: str, tau: float
) -> None:
    values = bounded.normal(SHAPE, 12) * row_scales(6)
    words, spec = bounded.words_of(values, dtype), TensorSpec("t", dtype, SHAPE)
    pipe = bounded.pipeline(tau=tau)
    decoded = decode_payload(pipe, spec, bounded.encoded(pipe, spec, words, 0.3))
    original = values_of(words, dtype).reshape(SHAPE)
    restored = values_of(np.frombuffer(decoded, np.uint8), dtype).reshape(SHAPE)
    deviations = original.astype(np.float64).std(axis=1, keepdims=True)
    beyond = np.abs(original) > 1.0001 * tau * deviations
    assert beyond.any()
    assert np.array_equal(original[beyond], restored[beyond])
    assert not np.array_equal(original, restored)


def test_f16_that_would_become_infinite_is_kept(each_kernel: str, decode_payload: Decode) -> None:
    values = np.full(SHAPE, 65_504.0)
    values[::7] = 40_000.0
    words = bounded.words_of(values, "F16")
    spec, pipe = TensorSpec("t", "F16", SHAPE), bounded.pipeline(spacing="uniform")
    decoded = decode_payload(pipe, spec, bounded.encoded(pipe, spec, words, 0.2))
    assert np.isfinite(values_of(np.frombuffer(decoded, np.uint8), "F16")).all()


def test_f16_kept_at_the_end_of_the_range_needs_no_level(decode_payload: Decode) -> None:
    """Their levels would be too large, and are not counted as any."""
    values = np.full((2, 16), 65_504.0)
    values[0, 0] = 0
    words, spec = bounded.words_of(values, "F16"), TensorSpec("t", "F16", (2, 16))
    for epsilon in (0.001, 0.004, 0.1, 0.5):
        coded = bounded.encoded(BOUNDED["fast"], spec, words, epsilon)
        decoded = np.frombuffer(decode_payload(BOUNDED["fast"], spec, coded), np.uint8)
        assert bounded.relative_errors(words, decoded, "F16", 32)[0] <= epsilon


@dtypes
def test_a_chunk_without_a_step_is_kept_whole(decode_payload: Decode, dtype: str) -> None:
    """F16 has no numbers so small that a step for them is too small."""
    values = bounded.normal((256, 64), 5)
    values[:64] *= 1e-36
    words, spec = bounded.words_of(values, dtype), TensorSpec("t", dtype, (256, 64))
    pipe = bounded.pipeline()
    coded = bounded.encoded(pipe, spec, words, 0.05)
    steps = bounded.model_of(pipe, spec, coded).on_levels.steps
    assert np.array_equal(steps == 0, [dtype != "F16", False, False, False])
    decoded = decode_payload(pipe, spec, coded)
    if dtype != "F16":
        assert (
            decoded[: 4096 * bounded.SIZES[dtype]] == words[: 4096 * bounded.SIZES[dtype]].tobytes()
        )


@pipelines
def test_json_round_trip(pipe: Pipeline) -> None:
    again = pipeline_from_dict(json.loads(json.dumps(pipe.to_dict())))
    assert again == pipe
    assert not again.is_exact


def encoded_to_5_percent() -> tuple[Pipeline, Span, TensorModel]:
    words, spec = words_of("normal", "BF16"), TensorSpec("t", "BF16", SHAPE)
    pipe = bounded.pipeline()
    model = bounded.model_of(pipe, spec, bounded.encoded(pipe, spec, words, 0.05))
    span = Span(0, ROWS * COLUMNS, words)
    model.table_of_chunk["symbol"] = np.zeros(model.chunks, np.uint8)
    model.coders["symbol"] = "rans"
    pipe.encode(span, model)
    return pipe, span, model


def test_the_check_notices_an_error_above_the_bound() -> None:
    pipe, span, model = encoded_to_5_percent()
    with pytest.raises(IntegrityError, match=r"words from 0 on do not decode to within 0\.001"):
        pipe.check(span, model, 0.001)
    pipe.check(span, model, 0.05)


class Trusting(ErrorBound):
    """Finds everything within the bound, and changes what was decoded."""

    def check(
        self, original: Span, decoded: Span, model: TensorModel, epsilon: float
    ) -> CheckResult:
        decoded.words[:] = original.words
        return CheckResult(decoded.words)


class Strict(ErrorBound):
    """Refuses everything."""

    def check(
        self, original: Span, decoded: Span, model: TensorModel, epsilon: float
    ) -> CheckResult:
        raise IntegrityError("not good enough")


@pytest.mark.parametrize(
    ("bound", "epsilon", "words"),
    [
        (Trusting(), 0.001, "do not decode to within"),
        (Strict(), 0.05, "not good enough"),
    ],
    ids=["trusting", "strict"],
)
def test_no_stage_waves_through_an_error_above_the_bound(
    bound: ErrorBound, epsilon: float, words: str
) -> None:
    pipe, span, model = encoded_to_5_percent()
    other = replace(pipe, stages=(*pipe.stages[:3], bound, pipe.stages[4]))
    with pytest.raises(IntegrityError, match=words):
        other.check(span, model, epsilon)


@pytest.mark.parametrize(
    "changes",
    [
        {"grid": HistogramGrid()},
        {"bound": BitExact()},
        {"grid": HistogramGrid(), "bound": BitExact()},
    ],
    ids=str,
)
def test_a_pipeline_has_stages_of_one_mode(changes: dict[str, HistogramGrid | BitExact]) -> None:
    stages = {stage.slot: stage for stage in bounded.pipeline().stages}
    with pytest.raises(UsageError, match="cannot have both"):
        pipeline_of("mixed", (stages | changes).values())
    exact = {stage.slot: stage for stage in PRESETS["default"].stages}
    with pytest.raises(UsageError, match="cannot have both"):
        pipeline_of("mixed", (exact | {"grid": LevelGrid()}).values())
