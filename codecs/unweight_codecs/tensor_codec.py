"""Tensors coded and decoded in memory, without a file: for measuring and for self-tests."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.accelerators import SPAN_CHUNKS, CodedSpan
from unweight_codecs.errors import UnweightError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.layouts import layout_of
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import chunk_lengths
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.span import Span
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec


@dataclass(slots=True)
class Coded:
    """A tensor coded in memory; ``size`` is what it takes in a file."""

    spec: TensorSpec
    size: int
    head: bytes
    spans: list[Span]


def encode_tensor(
    pipeline: Pipeline, spec: TensorSpec, data: Bytes, epsilon: float = 0.0
) -> Coded | None:
    """Code a tensor in memory, without checking; None when it would not shrink.

    ``epsilon`` is the error bound of a pipeline that is not exact.
    """
    found = encode_smallest([(pipeline, epsilon)], spec, data)
    return found[1] if found else None


def encode_smallest(
    choices: Sequence[tuple[Pipeline, float]], spec: TensorSpec, data: Bytes
) -> tuple[Pipeline, Coded] | None:
    """Code a tensor with the pipeline that makes it smallest; None when it would not shrink.

    ``choices`` are pipelines for chunks of one size, each with its error bound.
    """
    layout = layout_of(spec)

    def read(first: int, count: int) -> Bytes:
        return data[first * layout.word_bytes : (first + count) * layout.word_bytes]

    view, _ = survey(spec, read, choices[0][0].chunk_words(layout), lambda words: None)
    fitted = [(pipeline, pipeline.fit(view, epsilon)) for pipeline, epsilon in choices]
    expected = [
        pipeline.head_length(model) + model.estimated_bits // 8 for pipeline, model in fitted
    ]
    if min(expected) >= data.size:
        return None
    pipeline, model = fitted[expected.index(min(expected))]
    spans = []
    step = SPAN_CHUNKS * model.chunk_words
    for first in range(0, layout.words, step):
        count = min(step, layout.words - first)
        span = Span(first, count, read(first, count))
        pipeline.encode(span, model)
        span.drop_streams()
        spans.append(span)
    head = pipeline.write_head(model, np.concatenate([span.directory for span in spans]))
    size = len(head) + sum(span.coded.size for span in spans)
    return (pipeline, Coded(spec, size, head, spans)) if size < data.size else None


def decode_tensor(pipeline: Pipeline, coded: Coded) -> list[Bytes]:
    """Decode what ``encode_tensor`` returned, span by span, with all checks."""
    model, _ = pipeline.read_head(coded.head, coded.spec, coded.size)
    restored = []
    for span in coded.spans:
        empty = span.copy_empty()
        pipeline.decode(empty, model)
        restored.append(empty.words)
    return restored


def spans_of(pipeline: Pipeline, coded: Coded, span_chunks: int) -> list[CodedSpan]:
    """Return what ``encode_tensor`` returned as spans of so many chunks, for an engine."""
    model, directory = pipeline.read_head(coded.head, coded.spec, coded.size)
    chunks = np.concatenate([span.coded for span in coded.spans])
    ends = np.concatenate([[0], np.cumsum(chunk_lengths(directory))])
    return [
        _span_of(
            pipeline,
            model,
            first,
            directory[first : first + span_chunks],
            chunks[ends[first] : ends[min(first + span_chunks, model.chunks)]],
        )
        for first in range(0, model.chunks, span_chunks)
    ]


def _span_of(
    pipeline: Pipeline,
    model: TensorModel,
    first_chunk: int,
    directory: NDArray[np.void],
    coded: Bytes,
) -> CodedSpan:
    first_word = first_chunk * model.chunk_words
    count = min(len(directory) * model.chunk_words, model.layout.words - first_word)
    size = count * model.layout.word_bytes

    def read(buffer: Bytes) -> Span:
        buffer[:] = coded
        return Span(first_word, count, coded=buffer, directory=directory)

    def decode(span: Span) -> None:
        span.words = buffers.empty(size)
        pipeline.decode(span, model)

    def failed(error: UnweightError) -> UnweightError:
        return error

    built_in = pipeline.is_built_in
    return CodedSpan(model, directory, coded.size, size, read, decode, failed, built_in)
