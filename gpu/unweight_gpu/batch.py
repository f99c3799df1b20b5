"""A batch of coded chunks as kernels take it: places, parameters, tables, and who does what."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import Block, Model
from unweight_codecs.entropy.directory import CODERS, parse_directory
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.base import ALPHABET, Bytes, Frequencies, padded
from unweight_codecs.quantise.values import FLOATS
from unweight_gpu.chunks import (
    CHUNK,
    CODED,
    CONSTANT,
    EXPANDED,
    PACKED,
    STREAM,
    TEAM,
    TEAMS,
    TENSOR,
)

ALIGNMENT: Final = 256  # of what begins in a buffer, as of device memory itself

_KIND_OF_CODER: Final = np.array(
    [{"raw": PACKED, "constant": CONSTANT, "rans": CODED}.get(name, PACKED) for name in CODERS],
    np.uint8,
)
_RANS, _ZSTD = CODERS.index("rans"), CODERS.index("zstd")
_PLANE_WORDS: Final = (1, 2, 3, 4, 8)  # bytes of the words that kernels join from planes


def obstacle(model: Model, directory: NDArray[np.void]) -> str:
    """Return why kernels cannot decode chunks of a model, "" if they can."""
    layout = model.layout
    if layout.fields:
        return "quantised blocks"
    if not layout.is_float and layout.word_bytes not in _PLANE_WORDS:
        return f"words of {layout.word_bytes} bytes"
    if np.any(directory["segments"] >> 28 == _ZSTD):
        return "zstd"
    return ""


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
        out_at: Where the words of every block come out, in a buffer of ``out_bytes``.
        expanded_bytes: Size of the buffer of expanded streams.
        parameters: Scales, levels and factors of tensors.
        frequencies: Shape (tables, 256).
        chunks, tensors, streams: Records of ``CHUNK``, ``TENSOR``, ``STREAM``.
        chunk_teams, stream_teams: Records of ``TEAMS``.
        launches: Kernels over ``chunk_teams``; streams are expanded before.
        block_of_chunk: The block whose chunk has each number.
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
    block_of_chunk: NDArray[np.int64]


@dataclass(slots=True)
class Places:
    """Where things go in a buffer, one after the other, aligned."""

    end: int = 0

    def add(self, nbytes: int) -> int:
        """Return the place of ``nbytes`` more bytes."""
        place = self.end
        self.end += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return place


class BatchBuilder:
    """Collects blocks and describes them to the kernels. None of them may have an ``obstacle``."""

    def __init__(self) -> None:
        self._out, self._expanded = Places(), Places()
        self._parameters, self._blobs = Places(), list[tuple[int, Bytes]]()
        self._out_at = list[int]()
        self._tables, self._table_count = list[Frequencies](), 0
        self._tensors: dict[int, _Tensor] = {}
        self._chunks, self._streams = list[NDArray[np.void]](), list[NDArray[np.void]]()
        self._kernels, self._chunk_tables = list[str](), list[tuple[int, int]]()
        self._stream_tables, self._blocks = list[int](), list[int]()

    def add(self, block: Block, model: Model, coded_at: int) -> None:
        """Add a block whose coded bytes begin at ``coded_at`` of their buffer.

        Raises IntegrityError for a directory that cannot be right. What lies in the chunks is left
        for the kernels to check, as is every length.
        """
        tensor = self._tensors.get(id(model)) or self._add_tensor(model)
        located = parse_directory(block, model)
        names = list(model.streams())
        out_at = self._out.add(block.count * model.layout.word_bytes)
        self._out_at.append(out_at)
        chunks = np.zeros(len(located), CHUNK)
        number = np.arange(len(located)) + len(self._blocks)
        starts = np.arange(len(located)) * model.chunk_words
        chunks["out"] = out_at + starts * model.layout.word_bytes
        chunks["first"] = block.first_word + starts
        chunks["count"] = np.minimum(block.count - starts, model.chunk_words)
        chunks["tensor"], chunks["number"] = tensor.number, number
        if model.steps is not None:
            first = block.first_word // model.chunk_words
            chunks["step"] = model.steps[first : first + len(located)]
        parts = 0
        for k, (name, bits) in enumerate(model.streams().items()):
            place = chunks[name] if name in ("symbol", "escape") else chunks["parts"][:, parts]
            parts += name not in ("symbol", "escape")
            place["offset"] = located["offset"][:, k] + coded_at
            place["length"] = located["length"][:, k]
            place["kind"] = _KIND_OF_CODER[located["coder"][:, k]]
            place["bits"] = bits
            coded = np.flatnonzero(located["coder"][:, k] == _RANS)
            if not coded.size:
                continue
            tables = tensor.tables.get(name)
            if name == "escape" or tables is None:
                raise IntegrityError("a chunk is coded with a table that the file does not have")
            if tensor.classes == 0 and np.any(located["table"][coded, k] >= tables[1]):
                raise IntegrityError("a chunk is coded with a table that the file does not have")
            if name != "symbol":
                self._expand(place, coded, chunks, located["table"][:, k] + tables[0])
        if "escape" in names and np.any(located["coder"][:, names.index("escape")] != 0):
            raise IntegrityError("a chunk codes its escapes")
        self._chunks.append(chunks)
        self._blocks += [len(self._out_at) - 1] * len(located)
        self._kernels += [tensor.kernel] * len(located)
        self._chunk_tables += self._tables_of(tensor, located, names)

    def _tables_of(
        self, tensor: "_Tensor", located: NDArray[np.void], names: list[str]
    ) -> list[tuple[int, int]]:
        """Return first and number of the tables of every chunk's symbols."""
        if "symbol" not in names:
            return [(0, 0)] * len(located)
        k = names.index("symbol")
        first, _ = tensor.tables.get("symbol", (0, 0))
        return [
            (0, 0)
            if row["coder"] != _RANS
            else (first, tensor.classes)
            if tensor.classes
            else (first + int(row["table"]), 1)
            for row in located[:, k]
        ]

    def _expand(
        self,
        place: NDArray[np.void],
        coded: NDArray[np.int64],
        chunks: NDArray[np.void],
        tables: NDArray[np.int64],
    ) -> None:
        """Let coded streams be expanded first, a byte per value, and be read from there."""
        for i in coded:
            count = int(chunks["count"][i])
            stream = np.zeros(1, STREAM)
            stream["source"] = place[i]
            stream["out"] = self._expanded.add(padded(count))
            stream["count"], stream["chunk"] = count, chunks["number"][i]
            self._streams.append(stream)
            self._stream_tables.append(int(tables[i]))
            place["offset"][i], place["length"][i] = stream["out"][0], padded(count)
            place["kind"][i] = EXPANDED

    def _add_tensor(self, model: Model) -> "_Tensor":
        record = np.zeros(1, TENSOR)
        layout, streams = model.layout, model.streams()
        record["words"], record["columns"] = layout.words, layout.columns
        record["parts"] = len(streams.keys() - {"symbol", "escape"})
        tables = {name: self._add_tables(rows) for name, rows in model.tables.items()}
        kernel, classes = f"join_planes_{layout.word_bytes}", 0
        if model.levels is not None:
            kernel = f"decode_levels_{layout.word_bytes}"
            record["limit"], record["bias"] = model.levels.limit, model.levels.bias
            record["low_bits"] = model.levels.low_bits
            record["dtype"] = FLOATS.index(model.spec.dtype)
            if model.levels.table is not None:
                record["has_table"] = 1
                record["level_table"] = self._add_blob(model.levels.table.astype("<i4"))
            self._add_factors(record, model)
        elif layout.is_float:
            kernel = f"decode_words_{layout.word_bytes}"
            record["exponent_bits"] = layout.exponent_bits
            record["mantissa_bits"] = layout.mantissa_bits
            record["top_bits"], record["base"] = model.top_bits, model.base
            record["limit"] = model.escape_limit
            if model.classes is not None:
                classes = len(model.classes.tables)
                kernel = f"decode_classes_{layout.word_bytes}"
                tables["symbol"] = self._add_tables(model.classes.tables)
                for name in ("row_scales", "column_scales", "class_of_sum"):
                    record[name] = self._add_blob(getattr(model.classes, name))
        record["classes"] = classes
        found = _Tensor(len(self._tensors), record, kernel, tables, classes, model)
        self._tensors[id(model)] = found
        return found

    def _add_factors(self, record: NDArray[np.void], model: Model) -> None:
        factors = model.low_rank
        if factors is None:
            return
        record["tile_rows"], record["tile_columns"] = factors.tile
        record["down"], record["across"], record["rank"] = factors.weights.shape
        record["scale"] = factors.scale
        record["weights"] = self._add_blob(factors.weights.astype("<u2"))
        record["left"], record["right"] = (
            self._add_blob(factors.left),
            self._add_blob(factors.right),
        )

    def _add_tables(self, rows: Frequencies) -> tuple[int, int]:
        first = self._table_count
        self._tables.append(rows)
        self._table_count += len(rows)
        return first, len(rows)

    def _add_blob(self, values: NDArray[np.generic]) -> int:
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        place = self._parameters.add(data.size)
        self._blobs.append((place, data))
        return place

    def build(self) -> Batch:
        """Return the batch of all blocks added."""
        parameters = np.zeros(self._parameters.end, np.uint8)
        for place, data in self._blobs:
            parameters[place : place + data.size] = data
        chunks, teams, launches = self._chunk_teams()
        streams, stream_teams = self._stream_teams()
        tables = self._tables or [np.zeros((0, ALPHABET), np.uint16)]
        return Batch(
            out_at=tuple(self._out_at),
            out_bytes=self._out.end,
            expanded_bytes=self._expanded.end,
            parameters=parameters,
            frequencies=np.concatenate(tables),
            chunks=chunks,
            tensors=np.concatenate([tensor.record for tensor in self._tensors.values()])
            if self._tensors
            else np.zeros(0, TENSOR),
            streams=streams,
            chunk_teams=teams,
            stream_teams=stream_teams,
            launches=launches,
            block_of_chunk=np.array(self._blocks, np.int64),
        )

    def _chunk_teams(self) -> tuple[NDArray[np.void], NDArray[np.void], tuple[Launch, ...]]:
        """Order chunks by kernel and table, so that those of a team share both."""
        if not self._chunks:
            return np.zeros(0, CHUNK), np.zeros(0, TEAMS), ()
        chunks = np.concatenate(self._chunks)
        keys = list(zip(self._kernels, self._chunk_tables, strict=True))
        order = sorted(range(len(keys)), key=lambda i: keys[i])
        teams, launches = list[tuple[int, int, int, int]](), list[Launch]()
        for kernel in sorted(set(self._kernels)):
            first = len(teams)
            mine = [(at, keys[i][1]) for at, i in enumerate(order) if keys[i][0] == kernel]
            teams += _teams(mine)
            launches.append(Launch(kernel, first, len(teams) - first))
        return chunks[order], np.array(teams, TEAMS), tuple(launches)

    def _stream_teams(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        if not self._streams:
            return np.zeros(0, STREAM), np.zeros(0, TEAMS)
        order = sorted(range(len(self._streams)), key=lambda i: self._stream_tables[i])
        teams = _teams([(at, (self._stream_tables[i], 1)) for at, i in enumerate(order)])
        return np.concatenate(self._streams)[order], np.array(teams, TEAMS)


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of a batch: its record, and the first and number of each stream's tables."""

    number: int
    record: NDArray[np.void]
    kernel: str
    tables: dict[str, tuple[int, int]]
    classes: int
    model: Model  # keeps its id from being used again


def _teams(members: list[tuple[int, tuple[int, int]]]) -> list[tuple[int, int, int, int]]:
    """Cut neighbours with the same tables into teams: (first, number, table, tables)."""
    teams = list[tuple[int, int, int, int]]()
    for at, tables in members:
        if teams:
            first, number, *last = teams[-1]
            if number < TEAM and tuple(last) == tables and first + number == at:
                teams[-1] = (first, number + 1, *tables)
                continue
        teams.append((at, 1, *tables))
    return teams
