"""Packing: entropy coding and layout of the streams of every chunk.

A chunk is the concatenation of one segment per stream, each padded to 8 bytes. The directory says
for every chunk its checksum, and for every segment its coder, table and length.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from unweight_codecs.codec import Stage, TensorView, check_setting
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import GROUP, padded
from unweight_codecs.layouts import WordLayout
from unweight_codecs.model import BUILT_IN_CODERS, TensorModel
from unweight_codecs.payload import segments
from unweight_codecs.payload.coders import MAX_CODERS, RANS_OVERHEAD_BYTES, coder_named
from unweight_codecs.payload.directory import chunk_lengths, directory_dtype, entry, parse_directory
from unweight_codecs.span import Span

DEFAULT_CHUNK_LOG2, MIN_CHUNK_LOG2, MAX_CHUNK_LOG2 = 17, 12, 17
MAX_CHUNK_WORDS = 1 << 18
_SECTION = struct.Struct("<I")


@dataclass(frozen=True)
class Pack(Stage):
    """Codes streams by rANS where the grid has a table for them, raw where they do not shrink.

    Attributes:
        chunk_log2: log2 of the words per chunk to aim at.
        coders: Names of coders to try on every stream besides the built-in ones, joined by ``+``.
    """

    chunk_log2: int = DEFAULT_CHUNK_LOG2
    coders: str = ""

    name: ClassVar[str] = "pack"
    slot: ClassVar[str] = "pack"

    def __post_init__(self) -> None:
        check_setting(self, "chunk_log2", self.chunk_log2, MIN_CHUNK_LOG2, MAX_CHUNK_LOG2)
        room = MAX_CODERS - len(BUILT_IN_CODERS)
        coders: object = self.coders  # of a manifest, so perhaps anything
        if not isinstance(coders, str) or coders.count("+") >= room:
            raise UsageError(f"stage {self.label()}: coders must be up to {room} names joined by +")
        for name in self.coder_names:
            coder_named(name)

    @property
    def coder_names(self) -> tuple[str, ...]:
        """The coders by their numbers in the directory."""
        return (*BUILT_IN_CODERS, *filter(None, self.coders.split("+")))

    def chunk_words(self, layout: WordLayout) -> int:
        """Return the words per chunk for a tensor, a multiple of 128.

        Chunks are made equally long, near the size aimed at or below it for small tensors: a short
        last chunk would pay for its lane states and be decoded without a partner.
        """
        target = 1 << self.chunk_log2
        if layout.fields:  # blocks are long, and their scales alone need a few thousand
            target = max(GROUP, 4 * target // layout.word_bytes)
        chunks = max(1, (layout.words + target // 2) // target)
        return max(GROUP, padded(-(-layout.words // chunks)))

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Add the directory, the states of the lanes and the padding to the estimate."""
        streams = len(model.streams())
        model.estimated_bits += 8 * model.chunks * (directory_dtype(model).itemsize + 4 * streams)
        model.estimated_bits += 8 * model.chunks * RANS_OVERHEAD_BYTES * len(model.coders)

    def write(self, model: TensorModel) -> bytes:
        """Write u32 words per chunk. The directory follows the sections."""
        return _SECTION.pack(model.chunk_words)

    def read(self, section: bytes, model: TensorModel) -> None:
        """Restore the chunk size."""
        if len(section) != _SECTION.size:
            raise IntegrityError("the pack section has a wrong size")
        (model.chunk_words,) = _SECTION.unpack(section)
        largest = MAX_CHUNK_WORDS
        if model.layout.fields:  # blocks are long: a decoder holds several chunks in memory
            largest = 4 * MAX_CHUNK_WORDS // model.layout.word_bytes
        if not GROUP <= model.chunk_words <= largest or model.chunk_words % GROUP:
            raise IntegrityError("the pack section has an impossible chunk size")

    def encode(self, span: Span, model: TensorModel) -> None:
        """Streams → ``coded`` and ``directory`` (one row per chunk)."""
        streams = [
            segments.encode_stream(span, model, stream, bits)
            for stream, bits in model.streams().items()
        ]
        chunks = list(zip(*streams, strict=True))
        span.directory = np.zeros(len(chunks), directory_dtype(model))
        span.directory["segments"] = [
            [entry(segment.coder, segment.table, segment.data.size) for segment in chunk]
            for chunk in chunks
        ]
        ends = np.cumsum(chunk_lengths(span.directory))
        span.coded = buffers.empty(int(ends[-1]) if len(ends) else 0)
        at = 0
        for i, chunk in enumerate(chunks):
            start = at
            for segment in chunk:
                span.coded[at : at + segment.data.size] = segment.data
                at += segment.data.size
                padding = -segment.data.size % 8
                span.coded[at : at + padding] = 0
                at += padding
            span.directory["checksum"][i] = xxhash.xxh3_64_intdigest(span.coded[start:at].data)

    def decode(self, span: Span, model: TensorModel) -> None:
        """Undo ``encode``, checking every checksum, coder and length first."""
        located = locate(span, model)
        for k, (stream, bits) in enumerate(model.streams().items()):
            segments.decode_stream(span, model, stream, bits, located[:, k])


def locate(span: Span, model: TensorModel) -> NDArray[np.void]:
    """Check the coded bytes of a span against its directory.

    Returns segments of shape (chunks, streams) with offsets into ``span.coded``. Raises
    IntegrityError when a checksum or length is wrong.
    """
    ends = np.cumsum(chunk_lengths(span.directory)).tolist()
    if (ends[-1] if ends else 0) != span.coded.size:
        raise IntegrityError("a chunk has another length than the directory says")
    start = 0
    for end, checksum in zip(ends, span.directory["checksum"].tolist(), strict=True):
        if xxhash.xxh3_64_intdigest(span.coded[start:end].data) != checksum:
            raise IntegrityError("a chunk's checksum is wrong: the file is damaged")
        start = end
    return parse_directory(span, model)
