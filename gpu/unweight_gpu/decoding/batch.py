"""A batch of coded chunks as kernels take it: places, parameters, tables, and which kernels."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes, Frequencies, padded
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import parse_directory
from unweight_codecs.span import Span
from unweight_gpu.decoding.records import (
    CHUNK,
    CODED,
    EXPANDED,
    KIND_OF_CODER,
    PACKED,
    STREAM,
)
from unweight_gpu.decoding.teams import TABLE_NEED, TeamBuilder
from unweight_gpu.decoding.tensor_table import TensorRow, TensorTable
from unweight_gpu.device.buffers import BufferPlan
from unweight_gpu.palette.format import Layout, PaletteOffsets

_NO_PARTS: Final = ("symbol", "escape")


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel over teams of chunks: those from ``first`` on, ``teams`` of them."""

    kernel: str
    first: int
    teams: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks of any tensors, to be decoded by a few launches.

    Attributes:
        out_at: Where the words of every span come out, in a buffer of ``out_bytes``.
        expanded_bytes: Size of the buffer of expanded streams.
        parameters: Scales, levels and factors of tensors.
        frequencies: Shape (tables, 256).
        chunks, tensors, streams: Records of ``CHUNK``, ``TENSOR``, ``STREAM``.
        chunk_teams, stream_teams: Records of ``TEAMS``.
        launches: Kernels over ``chunk_teams``; streams are expanded before.
        span_of_chunk: The span whose chunk has each number.
    """

    out_at: tuple[int, ...]
    out_bytes: int
    expanded_bytes: int
    parameters: Bytes
    frequencies: Frequencies
    chunks: NDArray[np.void]
    tensors: NDArray[np.void]
    streams: NDArray[np.void]
    chunk_teams: NDArray[np.void]
    stream_teams: NDArray[np.void]
    launches: tuple[Launch, ...]
    span_of_chunk: NDArray[np.int64]


class BatchBuilder:
    """Collects spans and describes them to the kernels. None of them may have an ``obstacle``."""

    def __init__(self) -> None:
        self._out, self._expanded = BufferPlan(), BufferPlan()
        self._tensors = TensorTable()
        self._out_at, self._spans = list[int](), list[NDArray[np.int64]]()
        self._kernels = list[str]()
        self._chunks, self._streams = TeamBuilder(CHUNK), TeamBuilder(STREAM)

    def add(self, span: Span, model: TensorModel, coded_at: int) -> None:
        """Add a span whose coded bytes begin at ``coded_at``; its words will be as in the file.

        Raises IntegrityError for a directory that cannot be right. What lies in the chunks is left
        for the kernels to check, as is every length.
        """
        tensor = self._tensors.entry(model)
        chunks, needs = self._described(span, tensor, coded_at)
        starts = chunks["first"] - np.uint64(span.first_word)
        size = model.layout.word_bytes
        chunks["out"] = self._placed(span.count * size) + starts * np.uint64(size)
        needs["kernel"] = self._kernel_number(tensor.kernel)
        self._chunks.add(chunks, needs)

    def add_as_palette(self, span: Span, model: TensorModel, coded_at: int) -> PaletteOffsets:
        """Add all of a tensor, to become a palette; ``palette_obstacle`` must allow it.

        Returns where its arrays will be in the buffer of results.
        """
        tensor = self._tensors.entry(model)
        chunks, needs = self._described(span, tensor, coded_at)
        escapes = chunks["escape"]["length"].astype(np.int64)
        chunks["out"] = np.cumsum(escapes) - escapes
        needs["kernel"] = self._kernel_number(
            "decode_palette_classes" if tensor.classes else "decode_palette"
        )
        self._chunks.add(chunks, needs)
        layout = Layout(span.count // model.layout.columns, model.layout.columns)
        number = int(escapes.sum())
        self._out_at.append(self._out.nbytes)
        arrays = {
            name: self._out.add(size * dtype.itemsize)
            for name, (size, dtype) in layout.arrays(number).items()
        }
        offsets = PaletteOffsets(layout, model.base, number, arrays)
        self._tensors.set_palette_offsets(tensor, offsets)
        return offsets

    def build(self) -> Batch:
        """Return the batch of all spans added."""
        chunks, teams, kernels = self._chunks.in_teams()
        streams, stream_teams, _ = self._streams.in_teams()
        numbers, first, count = np.unique(kernels, return_index=True, return_counts=True)
        launches = (
            Launch(self._kernels[kernel], int(begin), int(size))
            for kernel, begin, size in zip(numbers, first, count, strict=True)
        )
        return Batch(
            out_at=tuple(self._out_at),
            out_bytes=self._out.nbytes,
            expanded_bytes=self._expanded.nbytes,
            parameters=self._tensors.parameters(),
            frequencies=self._tensors.frequencies(),
            chunks=chunks,
            tensors=self._tensors.records(),
            streams=streams,
            chunk_teams=teams,
            stream_teams=stream_teams,
            launches=tuple(launches),
            span_of_chunk=np.concatenate([np.zeros(0, np.int64), *self._spans]),
        )

    def _kernel_number(self, kernel: str) -> int:
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        return self._kernels.index(kernel)

    def _placed(self, nbytes: int) -> int:
        """Return where the next span comes out."""
        self._out_at.append(self._out.add(nbytes))
        return self._out_at[-1]

    def _described(
        self, span: Span, tensor: TensorRow, coded_at: int
    ) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return what there is to say of a span's chunks but where they go, and their tables."""
        model, located = tensor.model, parse_directory(span, tensor.model)
        chunks = self._numbered_chunks(span, tensor, len(located))
        needs, parts = np.zeros(len(located), TABLE_NEED), 0
        kinds = _kinds_of(located["coder"], model)
        streams = zip(model.streams().items(), located.T, kinds.T, strict=True)
        for (name, bits), segments, kind in streams:
            source = chunks[name] if name in _NO_PARTS else chunks["parts"][:, parts]
            parts += name not in _NO_PARTS
            source["offset"], source["length"] = segments["offset"] + coded_at, segments["length"]
            source["kind"], source["bits"] = kind, bits
            if name == "escape" and np.any(kind != PACKED):
                raise IntegrityError("a chunk codes its escapes")
            coded = np.flatnonzero(kind == CODED)
            if not coded.size:
                continue
            tables = _tables_of(tensor, name, segments["table"][coded])
            if name == "symbol":
                needs["table"][coded], needs["tables"][coded] = tables, max(1, tensor.classes)
            else:
                self._expand(source, chunks, coded, tables)
        return chunks, needs

    def _numbered_chunks(self, span: Span, tensor: TensorRow, number: int) -> NDArray[np.void]:
        model = tensor.model
        starts = np.arange(number) * model.chunk_words
        chunks = np.zeros(number, CHUNK)
        chunks["first"] = span.first_word + starts
        chunks["count"] = np.minimum(span.count - starts, model.chunk_words)
        chunks["tensor"] = tensor.number
        chunks["number"] = self._chunks.count + np.arange(number)
        if model.bounded is not None:
            first = span.first_word // model.chunk_words
            chunks["step"] = model.bounded.steps[first : first + number]
        self._spans.append(np.full(number, len(self._spans)))
        return chunks

    def _expand(
        self,
        source: NDArray[np.void],
        chunks: NDArray[np.void],
        coded: NDArray[np.int64],
        tables: NDArray[np.int64],
    ) -> None:
        """Let coded streams be expanded first, a byte per value, and be read from there."""
        streams, needs = np.zeros(len(coded), STREAM), np.zeros(len(coded), TABLE_NEED)
        needs["table"], needs["tables"] = tables, 1
        streams["source"] = source[coded]
        streams["count"], streams["chunk"] = chunks["count"][coded], chunks["number"][coded]
        sizes = [padded(int(count)) for count in streams["count"]]
        streams["out"] = [self._expanded.add(size) for size in sizes]
        source["offset"][coded], source["length"][coded] = streams["out"], sizes
        source["kind"][coded] = EXPANDED
        self._streams.add(streams, needs)


def _tables_of(tensor: TensorRow, stream: str, numbers: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the tables that coded segments need: those they name, or the first of all classes."""
    first, count = tensor.tables.get(stream, (0, 0))
    if stream == "symbol" and tensor.classes:
        return np.full(len(numbers), first)
    if np.any(numbers >= count):
        raise IntegrityError("a chunk is coded with a table that the file does not have")
    return first + numbers.astype(np.int64)


def _kinds_of(coders: NDArray[np.uint8], model: TensorModel) -> NDArray[np.uint8]:
    """Return how the values of each segment lie in the coded bytes, by the number of its coder."""
    kinds = np.zeros(coders.shape, np.uint8)
    for number in np.unique(coders).tolist():
        kinds[coders == number] = KIND_OF_CODER[model.coder_names[number]]
    return kinds
