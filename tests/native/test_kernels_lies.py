"""Chunks that point outside of their buffers are damage, whoever has made up their numbers.

What reads directories never makes such chunks; the kernels do not rely on it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support import bounded
from unweight_codecs import fused
from unweight_codecs.errors import IntegrityError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import (
    ALPHABET,
    CONTEXT_RUN,
    GROUP,
    SEGMENT,
    Bytes,
    Contexts,
    Frequencies,
)
from unweight_codecs.kernels.reference import ReferenceKernels
from unweight_codecs.payload.directory import parse_directory
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.span import Span
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec

REFERENCE = ReferenceKernels()
COUNT = 5 * GROUP - 3
TABLES = 3
LARGE = (1 << 20, 1 << 31, (1 << 32) - 1)
HUGE = (*LARGE, 1 << 40, (1 << 63) - 1, (1 << 64) - 8, (1 << 64) - 1)


@pytest.fixture(params=["native", "reference"])
def decoder(
    request: pytest.FixtureRequest, native_kernel: NativeKernels
) -> NativeKernels | ReferenceKernels:
    return native_kernel if request.param == "native" else REFERENCE


def coded_segments(
    contexts: Contexts | None,
) -> tuple[Bytes, NDArray[np.void], Frequencies, Bytes]:
    """Return two coded segments of equal length, their tables, and room for their symbols."""
    counts = np.zeros((TABLES, ALPHABET), np.int64)
    counts[:, :16] = np.arange(1, 17)
    frequencies = REFERENCE.normalise(counts)
    segments = np.zeros(2, SEGMENT)
    segments["count"], segments["start"], segments["table"] = COUNT, (0, 5 * GROUP), (0, 1)
    symbols = np.random.default_rng(0).integers(0, 16, 10 * GROUP).astype(np.uint8)
    coded = REFERENCE.rans_encode(symbols, segments, frequencies, contexts)
    return coded, segments, frequencies, np.zeros_like(symbols)


def lies_about_segments(size: int, symbols: int) -> Iterator[tuple[str, int]]:
    """Yield fields and values that lead out of ``size`` coded bytes or out of the symbols."""
    yield from (("offset", value) for value in (size - 1, size, *HUGE))
    yield from (("length", value) for value in (size + 1, *LARGE))
    yield from (("count", value) for value in (symbols + 1, symbols + GROUP + 1, *LARGE))
    yield from (("start", value) for value in (symbols - 1, symbols, *HUGE))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("run", [0, 1, CONTEXT_RUN])
def test_segments_that_lie(decoder: NativeKernels | ReferenceKernels, run: int, which: int) -> None:
    contexts = Contexts(np.zeros(10 * GROUP // run, np.uint8), run) if run else None
    coded, honest, frequencies, symbols = coded_segments(contexts)
    decoder.rans_decode(coded, honest, frequencies, contexts, symbols)
    for field, value in lies_about_segments(coded.size, symbols.size):
        segments = honest.copy()
        segments[field][which] = value
        with pytest.raises(IntegrityError):
            decoder.rans_decode(coded, segments, frequencies, contexts, symbols)


@pytest.mark.parametrize("run", [1, CONTEXT_RUN])
@pytest.mark.parametrize("context", [TABLES, 16, 255])
def test_contexts_without_a_table(
    decoder: NativeKernels | ReferenceKernels, context: int, run: int
) -> None:
    contexts = Contexts(np.zeros(10 * GROUP // run, np.uint8), run)
    coded, segments, frequencies, symbols = coded_segments(contexts)
    for at in (0, 5 * GROUP // run - 1, 5 * GROUP // run, contexts.of.size - 1):
        contexts.of[at] = context
        with pytest.raises(IntegrityError):
            decoder.rans_decode(coded, segments, frequencies, contexts, symbols)
        contexts.of[at] = 0


@pytest.mark.parametrize("run", [1, CONTEXT_RUN])
def test_too_few_contexts(decoder: NativeKernels | ReferenceKernels, run: int) -> None:
    contexts = Contexts(np.zeros(10 * GROUP // run, np.uint8), run)
    coded, segments, frequencies, symbols = coded_segments(contexts)
    for size in (0, 1, contexts.of.size - 1):
        few = Contexts(contexts.of[:size], run)
        with pytest.raises(IntegrityError):
            decoder.rans_decode(coded, segments, frequencies, few, symbols)


def test_tables_that_do_not_exist(decoder: NativeKernels | ReferenceKernels) -> None:
    coded, segments, frequencies, symbols = coded_segments(None)
    segments["table"][1] = TABLES
    with pytest.raises(IntegrityError):
        decoder.rans_decode(coded, segments, frequencies, None, symbols)
    segments["table"] = 0
    with pytest.raises(IntegrityError):
        decoder.rans_decode(coded, segments, frequencies[:0], None, symbols)


class Recorder:
    """Keeps the arguments of the fused decoders instead of decoding."""

    def __init__(self) -> None:
        self.arguments: list[Any] = []

    def decode16(self, *arguments: object) -> bool:
        """Keep the arguments."""
        self.arguments += arguments
        return True

    decode_levels = decode16


def recorded(
    pipe: Pipeline,
    spec: TensorSpec,
    words: Bytes,
    decode: Callable[..., bool],
    epsilon: float = 0.0,
) -> list[Any]:
    """Return what a fused decoder is called with for all of a tensor."""
    size = words.size // spec.elements
    view, _ = survey(
        spec, lambda at, n: words[size * at : size * (at + n)], 4096, lambda piece: None
    )
    model = pipe.fit(view, epsilon)
    span = Span(0, spec.elements, words)
    pipe.encode(span, model)
    empty, recorder = span.copy_empty(), Recorder()
    for stage in pipe.stages:
        stage.prepare(empty, model)
    assert decode(empty, model, parse_directory(empty, model), recorder)
    return recorder.arguments


def lies(
    chunks: NDArray[np.void], size: int, symbols: int, names: tuple[str, ...]
) -> Iterator[NDArray[np.void]]:
    """Yield copies of ``chunks`` of which one number leads out of ``size`` coded bytes."""
    for which in range(len(chunks)):
        for field, value in lies_about_segments(size, symbols):
            lying = chunks.copy()
            lying["symbol"][field][which] = value
            yield lying
        for name in names:
            largest = np.iinfo(chunks[name].dtype).max
            for value in (size + 1, *HUGE):
                lying = chunks.copy()
                lying[name][which] = min(value, largest)
                yield lying


@pytest.mark.parametrize("classes", [1, 8])
@pytest.mark.parametrize("dtype", ["BF16", "F16"])
@pytest.mark.parametrize("top_bits", [0, 1])
def test_chunks_of_16_bit_floats_that_lie(
    fused_kernel: NativeKernels, dtype: str, classes: int, top_bits: int
) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 1, 8192) * np.exp2(rng.integers(-3, 3, 128)).repeat(64)
    words = bounded.words_of(values.astype(np.float32), dtype)
    stages = (ExponentWindow(), HistogramGrid(mantissa_bits=top_bits), ScaleClasses(classes))
    pipe = pipeline_of("p", (*stages, BitExact(), Pack(chunk_log2=12)))
    arguments = recorded(pipe, TensorSpec("t", dtype, (128, 64)), words, fused.decode16)
    coded, chunks, *rest = arguments
    assert (rest[1] is not None) == (classes > 1)
    assert fused_kernel.decode16(*arguments)
    assert np.array_equal(rest[-1], words)
    low_plane = rest[2].raw_bits > 8
    for lying in lies(chunks, coded.size, 128 * 64, ("escape", "escape_count")):
        with pytest.raises(IntegrityError):
            fused_kernel.decode16(coded, lying, *rest)
    for value in (coded.size, coded.size - 1, *HUGE):
        for plane in range(1 + low_plane):
            lying = chunks.copy()
            lying["plane"][1, plane] = value
            with pytest.raises(IntegrityError):
                fused_kernel.decode16(coded, lying, *rest)
    arguments[-1] = words[:-2].copy()
    with pytest.raises(IntegrityError):
        fused_kernel.decode16(*arguments)


@pytest.mark.parametrize("dtype", bounded.FLOATS)
def test_chunks_on_levels_that_lie(native_kernel: NativeKernels, dtype: str) -> None:
    values = bounded.normal((128, 64), 0)
    words = bounded.with_specials(bounded.words_of(values, dtype), dtype, 5)
    pipe = bounded.pipeline(spacing="uniform")
    spec = TensorSpec("t", dtype, (128, 64))
    arguments = recorded(pipe, spec, words, fused.decode_levels, epsilon=0.002)
    coded, chunks, *rest = arguments
    assert rest[1].low_bits
    assert native_kernel.decode_levels(*arguments)
    for lying in lies(chunks, coded.size, 128 * 64, ("low", "escape", "escape_count")):
        with pytest.raises(IntegrityError):
            native_kernel.decode_levels(coded, lying, *rest)
    arguments[-1] = words[:-4].copy()
    with pytest.raises(IntegrityError):
        native_kernel.decode_levels(*arguments)
