"""Coded tensors as spans: what an engine reads, decodes, and may leave to the processor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import Stage
from unweight_codecs.errors import UnweightError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import chunk_lengths
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.span import Span
from unweight_codecs.tensor_spec import TensorSpec

SPAN_CHUNKS = 8  # enough to decode chunks in pairs, few enough to stay in the processor's caches

ReadInto = Callable[[int, memoryview], None]
"""Fills a buffer with coded bytes: (position, buffer)."""


@dataclass(frozen=True, slots=True)
class CodedSpan:
    """A run of chunks of one tensor, not yet read.

    Attributes:
        model: The model of the tensor.
        stage_types: The classes of the stages that coded it, in order. An engine decodes what it
            has kernels for; for other stages only ``decode`` knows what to do.
        directory: The directory's rows of these chunks.
        coded_bytes: Size of the chunks where they are stored.
        words_bytes: Size of what they decode to.
        read: Reads the coded bytes into a buffer of that size and returns a span to decode.
        decode: Decodes that span on the processor, with all checks.
        failed: Adds the file and the tensor to the message of an error.
    """

    model: TensorModel
    stage_types: tuple[type[Stage], ...]
    directory: NDArray[np.void]
    coded_bytes: int
    words_bytes: int
    read: Callable[[Bytes], Span]
    decode: Callable[[Span], None]
    failed: Callable[[UnweightError], UnweightError]


def unlocated(error: UnweightError) -> UnweightError:
    """Return an error as it is, for tensors that lie in no file."""
    return error


@dataclass(frozen=True, slots=True)
class PayloadHead:
    """The head of a coded tensor: its model and its chunk directory, ready to decode by chunks.

    Attributes:
        pipeline: The pipeline that coded the tensor.
        model: The model of the tensor, as the head describes it.
        directory: One row per chunk.
        ends: Where each chunk ends, counted from the first byte of the first chunk.
        chunks_offset: Position of that byte for whoever reads the chunks.
        head_bytes: Size of the head.
    """

    pipeline: Pipeline
    model: TensorModel
    directory: NDArray[np.void]
    ends: NDArray[np.int64]
    chunks_offset: int
    head_bytes: int

    @classmethod
    def parse(
        cls, pipeline: Pipeline, head: bytes, spec: TensorSpec, payload_bytes: int, offset: int = 0
    ) -> Self:
        """Parse the head of a payload of ``payload_bytes`` bytes that begins at ``offset``.

        Raises IntegrityError unless head, chunks and payload fit each other exactly.
        """
        model, directory = pipeline.read_head(head, spec, payload_bytes)
        ends = np.cumsum(chunk_lengths(directory))
        return cls(pipeline, model, directory, ends, offset + len(head), len(head))

    def spans(
        self,
        read_into: ReadInto,
        chunks: int = SPAN_CHUNKS,
        failed: Callable[[UnweightError], UnweightError] = unlocated,
    ) -> list[CodedSpan]:
        """Return the whole tensor as spans of ``chunks`` chunks, the last one perhaps shorter."""
        firsts = range(0, self.model.chunks, chunks)
        return [self.span(read_into, first, chunks, failed) for first in firsts]

    def span(
        self,
        read_into: ReadInto,
        first_chunk: int,
        chunks: int = SPAN_CHUNKS,
        failed: Callable[[UnweightError], UnweightError] = unlocated,
    ) -> CodedSpan:
        """Return ``chunks`` chunks from ``first_chunk``, or as many as there are."""
        model, pipeline = self.model, self.pipeline
        last = min(first_chunk + chunks, model.chunks)
        begin = int(self.ends[first_chunk - 1]) if first_chunk else 0
        first_word = first_chunk * model.chunk_words
        count = min(last * model.chunk_words, model.layout.words) - first_word
        directory = self.directory[first_chunk:last]
        words_bytes = count * model.layout.word_bytes

        def read(coded: Bytes) -> Span:
            try:
                read_into(self.chunks_offset + begin, coded.data)
            except UnweightError as error:
                raise failed(error) from None
            return Span(first_word, count, coded=coded, directory=directory)

        def decode(span: Span) -> None:
            span.words = buffers.empty(words_bytes)
            try:
                pipeline.decode(span, model)
            except UnweightError as error:
                raise failed(error) from None

        return CodedSpan(
            model=model,
            stage_types=pipeline.stage_types,
            directory=directory,
            coded_bytes=int(self.ends[last - 1]) - begin,
            words_bytes=words_bytes,
            read=read,
            decode=decode,
            failed=failed,
        )
