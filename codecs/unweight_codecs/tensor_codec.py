"""Tensors to payloads and back, in memory: the one loop that encodes, whatever reads and writes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unweight_codecs.accelerators import SPAN_CHUNKS, CodedSpan, PayloadHead
from unweight_codecs.codec import Reader, TensorView
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.layouts import layout_of
from unweight_codecs.model import TensorModel
from unweight_codecs.parallel import OrderedMap
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.span import Span
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class TensorFit:
    """A pipeline with the model that its stages fitted to a tensor.

    Attributes:
        number: Position of the pipeline among the choices.
        pipeline: The pipeline.
        model: The fitted model.
        epsilon: Relative error allowed; 0 in the exact mode.
    """

    number: int
    pipeline: Pipeline
    model: TensorModel
    epsilon: float

    @property
    def expected_bytes(self) -> int:
        """Estimated size of the payload."""
        return self.pipeline.head_length(self.model) + self.model.estimated_bits // 8


def fit_smallest(view: TensorView, choices: Sequence[tuple[Pipeline, float]]) -> TensorFit:
    """Fit each pipeline, with its error bound, and return the one that promises the fewest bytes.

    The pipelines must have chunks of the size that the view has. The first of equals wins.
    """
    fits = (
        TensorFit(number, pipeline, pipeline.fit(view, epsilon), epsilon)
        for number, (pipeline, epsilon) in enumerate(choices)
    )
    return min(fits, key=lambda fit: fit.expected_bytes)


def encode_spans(
    fit: TensorFit,
    read: Reader,
    ordered: OrderedMap = map,
    *,
    check: bool = True,
    span_chunks: int = SPAN_CHUNKS,
) -> Iterator[Span]:
    """Yield the coded spans of a tensor in order.

    With ``check`` each span is decoded again by the model that a reader will rebuild from the head,
    and compared; ``Span.checked`` then holds the result. Raises IntegrityError where it differs, or
    where the error bound does not hold.
    """
    pipeline, model = fit.pipeline, fit.model
    rebuilt = pipeline.as_decoded(model) if check else model
    step = span_chunks * model.chunk_words

    def encode(first: int) -> Span:
        count = min(step, model.layout.words - first)
        span = Span(first, count, read(first, count))
        pipeline.encode(span, model)
        if check:
            span.checked = pipeline.check(span, rebuilt, fit.epsilon)
        span.drop_streams()
        return span

    return ordered(encode, range(0, model.layout.words, step))


def reader_of(data: Bytes, spec: TensorSpec) -> Reader:
    """Return what reads words of a tensor whose bytes are in memory."""
    size = layout_of(spec).word_bytes
    return lambda first, count: data[first * size : (first + count) * size]


def view_in_memory(spec: TensorSpec, data: Bytes, pipeline: Pipeline) -> TensorView:
    """Survey a tensor whose bytes are in memory, in chunks as long as ``pipeline`` makes them."""
    chunk_words = pipeline.chunk_words(layout_of(spec))
    return survey(spec, reader_of(data, spec), chunk_words, _no_observer)[0]


def _no_observer(words: Bytes) -> None:
    """Take no note of the bytes that a survey reads."""


@dataclass(slots=True)
class EncodedTensor:
    """A payload in memory.

    Attributes:
        spec: The tensor.
        size: Bytes that the payload takes in a file.
        head: Its head.
        spans: Its spans, which hold the coded chunks.
    """

    spec: TensorSpec
    size: int
    head: bytes
    spans: list[Span]


def encode_fitted(fit: TensorFit, data: Bytes, *, check: bool = False) -> EncodedTensor:
    """Code a tensor in memory with a fitted pipeline, whatever size that gives."""
    spec = fit.model.spec
    spans = list(encode_spans(fit, reader_of(data, spec), check=check))
    head = fit.pipeline.write_head(fit.model, np.concatenate([span.directory for span in spans]))
    return EncodedTensor(spec, len(head) + sum(span.coded.size for span in spans), head, spans)


def encode_tensor(
    pipeline: Pipeline, spec: TensorSpec, data: Bytes, epsilon: float = 0.0
) -> EncodedTensor | None:
    """Code a tensor in memory, without checking; None when it would not shrink.

    ``epsilon`` is the error bound of a pipeline that is not exact.
    """
    found = encode_smallest([(pipeline, epsilon)], spec, data)
    return found[1] if found else None


def encode_smallest(
    choices: Sequence[tuple[Pipeline, float]], spec: TensorSpec, data: Bytes
) -> tuple[Pipeline, EncodedTensor] | None:
    """Code a tensor with the pipeline that makes it smallest; None when it would not shrink.

    ``choices`` are pipelines for chunks of one size, each with its error bound.
    """
    fit = fit_smallest(view_in_memory(spec, data, choices[0][0]), choices)
    if fit.expected_bytes >= data.size:
        return None
    encoded = encode_fitted(fit, data)
    return (fit.pipeline, encoded) if encoded.size < data.size else None


def decode_tensor(pipeline: Pipeline, encoded: EncodedTensor) -> list[Bytes]:
    """Decode what ``encode_tensor`` returned, span by span, with all checks."""
    model, _ = pipeline.read_head(encoded.head, encoded.spec, encoded.size)
    restored = []
    for span in encoded.spans:
        empty = span.copy_empty()
        pipeline.decode(empty, model)
        restored.append(empty.words)
    return restored


def spans_of(pipeline: Pipeline, encoded: EncodedTensor, span_chunks: int) -> list[CodedSpan]:
    """Return what ``encode_tensor`` returned as spans of ``span_chunks`` chunks, for an engine."""
    head = PayloadHead.parse(pipeline, encoded.head, encoded.spec, encoded.size)
    chunks = np.concatenate([span.coded for span in encoded.spans])
    return head.spans(_reader_into(chunks, head.chunks_offset), span_chunks)


def _reader_into(chunks: Bytes, offset: int) -> Callable[[int, memoryview], None]:
    def read_into(position: int, target: memoryview) -> None:
        start = position - offset
        target[:] = chunks[start : start + len(target)].data

    return read_into
