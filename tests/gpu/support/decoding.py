"""Tensors coded in memory, and decoded on a device without an engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tests.gpu.support.seeded import Seeded
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.layouts import layout_of
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.span import Span
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.decoding.batch import Batch, BatchBuilder
from unweight_gpu.decoding.decoder import Decoder
from unweight_gpu.device.buffers import BufferPlan

SPAN_CHUNKS = 2  # so that tensors of a few chunks have several spans


@dataclass(frozen=True, slots=True)
class Coded:
    """A coded tensor: the model as a decoder has it, and its spans without words."""

    model: TensorModel
    pipeline: Pipeline
    spans: tuple[Span, ...]

    def on_host(self) -> Bytes:
        """Decode on the processor."""
        return np.concatenate([self._decoded(span) for span in self.spans])

    def _decoded(self, span: Span) -> Bytes:
        size = span.count * self.model.layout.word_bytes
        copy = replace(span, words=np.zeros(size, np.uint8), streams={})
        self.pipeline.decode(copy, self.model)
        return copy.words


def lossless(
    top_bits: int = 0, classes: int = 1, chunk_log2: int = 12, tables: int = 4
) -> Pipeline:
    """Return a pipeline with m and K given."""
    stages = (
        ExponentWindow(),
        HistogramGrid(mantissa_bits=top_bits, tables=tables),
        ScaleClasses(classes),
        BitExact(),
        Pack(chunk_log2),
    )
    return pipeline_of("test", stages)


def code(pipeline: Pipeline, spec: TensorSpec, data: Bytes, epsilon: float = 0.0) -> Coded:
    """Code a tensor, even when it does not shrink."""
    layout = layout_of(spec)
    size = layout.word_bytes

    def read(first: int, count: int) -> Bytes:
        return data[first * size : (first + count) * size]

    view, _ = survey(spec, read, pipeline.chunk_words(layout), lambda words: None)
    model = pipeline.fit(view, epsilon)
    spans = []
    step = SPAN_CHUNKS * model.chunk_words
    for first in range(0, layout.words, step):
        span = Span(first, min(step, layout.words - first), read(first, step))
        pipeline.encode(span, model)
        spans.append(Span(span.first_word, span.count, coded=span.coded, directory=span.directory))
    return Coded(pipeline.as_decoded(model), pipeline, tuple(spans))


def decode(
    device: Seeded, coded: Coded, change: Callable[[Batch, Bytes], Batch] = lambda batch, _: batch
) -> tuple[Bytes, NDArray[np.uint32]]:
    """Return the words that a device decodes, and the status of every chunk.

    ``change`` may damage the description of the batch, or the coded bytes.
    """
    plan, builder = BufferPlan(), BatchBuilder()
    parts = list[Bytes]()
    for span in coded.spans:
        builder.add(span, coded.model, plan.add(span.coded.size))
        parts += [span.coded, np.zeros(plan.nbytes - sum(map(len, parts)) - span.coded.size, "u1")]
    data = np.concatenate(parts)
    batch = change(builder.build(), data)
    out = device.empty(batch.out_bytes, np.uint8)
    status = device.to_host(Decoder(device).launch(batch, device.array(data), out))
    words = device.to_host(out)
    sizes = [span.count * coded.model.layout.word_bytes for span in coded.spans]
    spans = zip(batch.out_at, sizes, strict=True)
    return np.concatenate([words[at : at + size] for at, size in spans]), status
