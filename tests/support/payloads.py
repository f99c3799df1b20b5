"""Payloads of tensors in memory; takes one apart and seals it again with every checksum right."""

import struct
from dataclasses import dataclass, field

import numpy as np
import xxhash
from numpy.typing import NDArray

from unweight_codecs.accelerators import SPAN_CHUNKS
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.payload import head as payload_head
from unweight_codecs.payload.directory import entry
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.span import Span
from unweight_codecs.tensor_codec import encode_spans, fit_smallest, reader_of, view_in_memory
from unweight_codecs.tensor_spec import TensorSpec


def encoded(
    pipeline: Pipeline,
    spec: TensorSpec,
    data: Bytes,
    epsilon: float = 0.0,
    span_chunks: int = SPAN_CHUNKS,
) -> bytes:
    """Return the payload of a tensor, even when it does not shrink; checked on the way."""
    view = view_in_memory(spec, data, pipeline)
    fit = fit_smallest(view, [(pipeline, epsilon)])
    read = reader_of(data, spec)
    spans = list(encode_spans(fit, read, span_chunks=span_chunks))
    head = pipeline.write_head(fit.model, np.concatenate([span.directory for span in spans]))
    assert len(head) == pipeline.head_length(fit.model)
    return head + b"".join(span.coded.tobytes() for span in spans)


def decoded(pipeline: Pipeline, spec: TensorSpec, coded: bytes) -> bytes:
    """Return the words of a payload, decoded as an archive reader does."""
    length = head_length(coded)
    model, directory = pipeline.read_head(coded[:length], spec, len(coded))
    words = np.empty(spec.nbytes, np.uint8)
    chunks = np.frombuffer(coded, np.uint8)[length:]
    span = Span(0, model.layout.words, words, coded=chunks, directory=directory)
    pipeline.decode(span, model)
    return words.tobytes()


def head_length(coded: bytes) -> int:
    """Return where the chunks of a payload begin."""
    return payload_head.peek_length(coded[:64], len(coded))


@dataclass
class Parts:
    """A payload taken apart: sections of the head, directory rows, and segments of each chunk."""

    pipeline: Pipeline
    spec: TensorSpec
    sections: list[bytes]
    directory: NDArray[np.void]
    segments: list[list[bytes]]
    surplus: bytes = b""
    extra_rows: bytes = b""
    lengths: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, data: bytes, pipeline: Pipeline, spec: TensorSpec) -> "Parts":
        """Take the payload of a tensor apart."""
        length = head_length(data)
        head = payload_head.parse_head(data[:length])
        _, directory = pipeline.read_head(data[:length], spec, len(data))
        segments, at = [], length
        for row in directory:
            chunk = []
            for value in row["segments"].tolist():
                size = value & 0xFFFFF
                chunk.append(data[at : at + size])
                at += size + -size % 8
            segments.append(chunk)
        return cls(pipeline, spec, list(head.sections), directory.copy(), segments)

    def change(self, chunk: int, stream: int, coder: str | int, table: int, data: bytes) -> None:
        """Replace one segment and its directory entry."""
        number = BUILT_IN_CODERS.index(coder) if isinstance(coder, str) else coder
        self.segments[chunk][stream] = data
        self.directory["segments"][chunk, stream] = entry(number, table, len(data))

    def drop_row(self) -> None:
        """Forget the last chunk's row, but not the chunk."""
        last = b"".join(segment + bytes(-len(segment) % 8) for segment in self.segments.pop())
        self.directory, self.surplus = self.directory[:-1], last

    def empty_chunks(self, number: int) -> None:
        """Put ``number`` chunks without bytes in place of the chunks."""
        self.directory = np.resize(self.directory, number)
        self.directory["segments"] = 0
        self.segments = [[b""] * self.directory["segments"].shape[1]] * number

    def seal(self) -> bytes:
        """Put the payload together with every checksum right."""
        body = b""
        for i, chunk in enumerate(self.segments):
            padded = b"".join(segment + bytes(-len(segment) % 8) for segment in chunk)
            self.directory["checksum"][i] = xxhash.xxh3_64_intdigest(padded)
            body += padded
        rows = self.directory.tobytes() + self.extra_rows
        head = bytearray(payload_head.write_head(self.sections, rows))
        for section, length in self.lengths.items():
            struct.pack_into("<I", head, 16 + 4 * section, length)
        return resealed(bytes(head)) + body + self.surplus

    def decode(self) -> bytes:
        """Return the words of the payload, sealed."""
        return decoded(self.pipeline, self.spec, self.seal())


def resealed(head: bytes) -> bytes:
    """Return a head with its checksum made right."""
    blank = head[:8] + bytes(8) + head[16:]
    return blank[:8] + struct.pack("<Q", xxhash.xxh3_64_intdigest(blank)) + blank[16:]
