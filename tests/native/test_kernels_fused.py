"""Kernels that do the work of several stages at once give what the stages give."""

from collections.abc import Callable

import numpy as np
import pytest
import xxhash

from unweight_codecs import fused
from unweight_codecs.codec import Stage
from unweight_codecs.errors import IntegrityError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import chunk_lengths, parse_directory
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.span import Span
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec

CHUNK = 4096
# Whole chunks that decode in pairs, an odd one left over, and ends too short for a full load.
LENGTHS = (1, 63, 64, 65, 700, 1025, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 1300, 4 * CHUNK - 1)
MANTISSA_BITS = (0, 1, 2, 3)


def pipeline(mantissa_bits: int, classes: int, chunk_log2: int = 12) -> Pipeline:
    grid = HistogramGrid(mantissa_bits=mantissa_bits, tables=4)
    pack = Pack(chunk_log2=chunk_log2)
    return pipeline_of(
        "small chunks", (ExponentWindow(), grid, ScaleClasses(classes=classes), BitExact(), pack)
    )


def weights(dtype: str, count: int) -> Bytes:
    """Return weights of rows with very different scales, some far outside any window."""
    rng = np.random.default_rng(count)
    scale = np.exp2(rng.integers(-6, 3, -(-count // 64))).repeat(64)[:count]
    values = (rng.normal(0, 0.02, count) * scale).astype("<f4")
    values[rng.random(count) < 0.01] *= np.float32(1e-4)
    if dtype == "F16":
        return values.astype("<f2").view(np.uint8)
    return np.ascontiguousarray(values.view("<u2")[1::2]).view(np.uint8)


def fitted(pipe: Pipeline, dtype: str, words: Bytes) -> TensorModel:
    count = words.size // 2
    shape = (count // 64, 64) if count % 64 == 0 else (count,)
    spec = TensorSpec("t", dtype, shape)
    view, _ = survey(spec, lambda at, n: words[2 * at : 2 * (at + n)], 4096, lambda piece: None)
    return pipe.fit(view)


def by_stages(stages: tuple[Stage, ...], words: Bytes, model: TensorModel) -> Span:
    """Encode a span stage by stage, without fused kernels."""
    span = Span(0, words.size // 2, words)
    for stage in stages:
        stage.prepare(span, model)
    for stage in stages:
        stage.encode(span, model)
    return span


@pytest.fixture
def native(native_kernel: NativeKernels, use_kernel: Callable[[str], None]) -> NativeKernels:
    """Return the kernels of an instruction set, which the pipeline uses, too."""
    use_kernel(native_kernel.name)
    return native_kernel


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("mantissa_bits", MANTISSA_BITS)
@pytest.mark.parametrize("dtype", ["BF16", "F16"])
@pytest.mark.parametrize("classes", [1, 8], ids=["tables", "classes"])
def test_spans_of_16_bit_floats(
    native: NativeKernels, dtype: str, mantissa_bits: int, classes: int, count: int
) -> None:
    pipe = pipeline(mantissa_bits, classes)
    words = weights(dtype, count)
    model = fitted(pipe, dtype, words)
    expected = by_stages(pipe.stages, words, model)
    span = Span(0, count, words)
    pipe.encode(span, model)
    assert np.array_equal(span.coded, expected.coded)
    assert np.array_equal(span.directory, expected.directory)
    pipe.check(span, model)


def test_classes_are_in_use_where_they_are_tested() -> None:
    words = weights("BF16", 4 * CHUNK)
    assert fitted(pipeline(1, 8), "BF16", words).context_map is not None


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_all_patterns_of_16_bits(native: NativeKernels, dtype: str) -> None:
    words = np.arange(1 << 16, dtype="<u2").view(np.uint8)
    for mantissa_bits in MANTISSA_BITS:
        pipe = pipeline(mantissa_bits, 1)
        model = fitted(pipe, dtype, words)
        span = Span(0, 1 << 16, words)
        pipe.encode(span, model)
        pipe.check(span, model)


def test_symbols_that_hardly_need_a_word(native: NativeKernels) -> None:
    """The whole chunk then looks like its own end, where the fused decoder hands over."""
    count = 2 << 15
    words = np.full(count, 0x3F80, np.uint16) | np.arange(count, dtype=np.uint16) & 0x7F
    words[5] = 0x4000
    pipe = pipeline(0, 1, chunk_log2=15)
    model = fitted(pipe, "BF16", words.view(np.uint8))
    expected = by_stages(pipe.stages, words.view(np.uint8), model)
    span = Span(0, count, words.view(np.uint8))
    pipe.encode(span, model)
    assert np.array_equal(span.coded, expected.coded)
    pipe.check(span, model)


def decode_unchecked(span: Span, model: TensorModel, kernel: NativeKernels) -> Bytes:
    """Decode without looking at checksums."""
    empty = span.copy_empty()
    ScaleClasses().prepare(empty, model)
    located = parse_directory(empty, model)
    assert fused.decode16(empty, model, located, kernel)
    return empty.words


def general_unchecked(span: Span, model: TensorModel) -> Bytes:
    """Decode through the stages, without looking at checksums."""
    empty = span.copy_empty()
    ScaleClasses().prepare(empty, model)
    Pack().decode(with_checksums(empty), model)
    HistogramGrid().decode(empty, model)
    ExponentWindow().decode(empty, model)
    return empty.words


def with_checksums(span: Span) -> Span:
    span.directory = span.directory.copy()
    ends = np.cumsum(chunk_lengths(span.directory)).tolist()
    starts = [0, *ends[:-1]]
    span.directory["checksum"] = [
        xxhash.xxh3_64_intdigest(span.coded[start:end].data)
        for start, end in zip(starts, ends, strict=True)
    ]
    return span


def outcome(decode: Callable[[], Bytes]) -> bytes | None:
    """Return decoded bytes; None for damage that was noticed."""
    try:
        return decode().tobytes()
    except IntegrityError:
        return None


@pytest.mark.parametrize("classes", [1, 8], ids=["tables", "classes"])
@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_damage_has_the_same_outcome_as_without_fusion(
    fused_kernel: NativeKernels, dtype: str, classes: int
) -> None:
    """Behind a checksum made to fit, a damaged chunk fails or means the same everywhere."""
    pipe = pipeline(1, classes)
    words = weights(dtype, 3 * CHUNK + 1300)
    model = fitted(pipe, dtype, words)
    span = Span(0, words.size // 2, words)
    pipe.encode(span, model)
    undamaged = span.coded
    for flip in np.random.default_rng(1).integers(0, undamaged.size * 8, 150).tolist():
        span.coded = undamaged.copy()
        span.coded[flip // 8] ^= 1 << flip % 8
        found = outcome(lambda: decode_unchecked(span, model, fused_kernel))
        assert found == outcome(lambda: general_unchecked(span, model)), flip
