"""Entropy coders: what turns the values of a stream into segments, in a table by name.

A segment is one stream of one chunk. Its entry in the chunk directory has the number of its coder:
the position of its name in ``TensorModel.coder_names``, the built-in ones first. Coders from
elsewhere are asked for by name in the setting ``coders`` of the stage ``pack`` and come through the
entry-point group ``unweight.coders``.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.entropy import zstd
from unweight_codecs.entropy.planning import ZSTD_LEVEL
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError, quoted
from unweight_codecs.kernels import buffers, kernels
from unweight_codecs.kernels.operands import SEGMENT, Bytes, Contexts, Frequencies, padded
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.plugins import PluginGroup

RANS_OVERHEAD_BYTES: Final = 96  # 32 states of 4 bytes, of which about 32 hold payload
MAX_CODERS: Final = 16  # a directory entry has four bits for the number


@dataclass(frozen=True, slots=True)
class StreamValues:
    """The values of one stream of a span, and what coders go by.

    Attributes:
        values: One byte per value; perhaps padded to whole groups.
        count: Values in the span.
        per_chunk: Values in a full chunk.
        bits: Bits of a value, 1 to 8.
        tables: Frequency tables, shape (tables, 256); None where the stream has none.
        contexts: The table of each value; None where a table codes a whole chunk.
        table_of_chunk: For encoding, the table of each chunk; None where contexts choose it.
    """

    values: Bytes
    count: int
    per_chunk: int
    bits: int
    tables: Frequencies | None = None
    contexts: Contexts | None = None
    table_of_chunk: NDArray[np.uint8] | None = None

    def chunk(self, number: int) -> Bytes:
        """Return the values of a chunk of the span."""
        start = number * self.per_chunk
        return self.values[start : min(start + self.per_chunk, self.count)]

    @property
    def chunks(self) -> range:
        """The numbers of the chunks of the span."""
        return range(-(-self.count // self.per_chunk))


@dataclass(frozen=True, slots=True)
class Segment:
    """Coded bytes, with the frequency table that coded them; 0 where there is none."""

    data: Bytes
    table: int = 0


class Coder(ABC):
    """Codes chunks of a stream. Coders have no state: one object serves all threads.

    Attributes:
        name: The name in pipelines; a coder of a plugin is called ``vendor.name``.
        keeps_width: Whether no segment, however damaged, decodes to a value of too many bits.
    """

    name: ClassVar[str]
    keeps_width: ClassVar[bool] = False

    def encode(self, stream: StreamValues, chunks: Sequence[int]) -> dict[int, Segment]:
        """Return the segments of some chunks, by number; a chunk that does not shrink may lack."""
        coded = ((i, self.encode_values(stream.chunk(i), stream.bits)) for i in chunks)
        return {i: Segment(data) for i, data in coded if data is not None}

    def decode(
        self,
        stream: StreamValues,
        coded: Bytes,
        located: NDArray[np.void],
        chunks: NDArray[np.int64],
    ) -> None:
        """Decode the segments of some chunks into ``stream.values``.

        ``located`` has a row of the parsed directory for every chunk of the span. Raises
        IntegrityError for a damaged segment.
        """
        for i in chunks.tolist():
            begin, size = int(located["offset"][i]), int(located["length"][i])
            values = stream.chunk(i)
            decoded = self.decode_values(coded[begin : begin + size], values.size, stream.bits)
            if decoded.size != values.size:  # one value would be taken for all of them
                raise IntegrityError(f"a segment of coder {self.name} has a wrong length")
            values[:] = decoded

    @abstractmethod
    def encode_values(self, values: Bytes, bits: int) -> Bytes | None:
        """Return the segment of one chunk's values, of ``bits`` bits each; None for no segment."""

    @abstractmethod
    def decode_values(self, data: Bytes, count: int, bits: int) -> Bytes:
        """Return the ``count`` values of a segment; raises IntegrityError unless it holds them."""


def raw_size(count: int, bits: int) -> int:
    """Return the bytes of ``count`` densely packed values of ``bits`` bits."""
    return -(-count * bits // 8)


class Raw(Coder):
    """Values packed without gaps, or as they are where they have eight bits."""

    name = "raw"
    keeps_width = True

    def encode_values(self, values: Bytes, bits: int) -> Bytes:
        """Pack the values."""
        return values if bits == 8 else kernels().pack_bits(values, bits)

    def decode_values(self, data: Bytes, count: int, bits: int) -> Bytes:
        """Unpack the values."""
        if data.size != raw_size(count, bits):
            raise IntegrityError("a raw segment has a wrong length")
        return data if bits == 8 else kernels().unpack_bits(data, count, bits)


class Constant(Coder):
    """One byte for a chunk whose values are all equal."""

    name = "constant"
    keeps_width = True

    def encode_values(self, values: Bytes, bits: int) -> Bytes | None:
        """Return the one value, or None where there are several."""
        # Most streams are not constant: a few probes decide without a pass over the data.
        probes = values[:: max(1, values.size // 8)]
        is_constant = np.all(probes == values[0]) and np.all(values == values[0])
        return values[:1] if is_constant else None

    def decode_values(self, data: Bytes, count: int, bits: int) -> Bytes:
        """Return the value as often as it is wanted."""
        if data.size != 1 or int(data[0]) >> bits:
            raise IntegrityError("a constant segment has a wrong length or value")
        return np.broadcast_to(data, count)


class Zstd(Coder):
    """A zstd frame of the values, a byte each: for streams that repeat themselves."""

    name = "zstd"

    def encode_values(self, values: Bytes, bits: int) -> Bytes:
        """Compress the values."""
        return np.frombuffer(zstd.compress(values.tobytes(), ZSTD_LEVEL), np.uint8)

    def decode_values(self, data: Bytes, count: int, bits: int) -> Bytes:
        """Decompress the values."""
        return np.frombuffer(zstd.decompress(data.tobytes(), count), np.uint8)


class Rans(Coder):
    """Range asymmetric numeral systems in 32 lanes, with the frequency tables of the stream."""

    name = "rans"

    def encode(self, stream: StreamValues, chunks: Sequence[int]) -> dict[int, Segment]:
        """Code several chunks in one call; those that are not smaller than raw are left out."""
        tables, contexts = stream.tables, stream.contexts
        if tables is None or not chunks:
            return {}
        wanted = np.zeros(len(chunks), SEGMENT)
        wanted["start"] = np.array(chunks) * stream.per_chunk
        wanted["count"] = [stream.chunk(i).size for i in chunks]
        if contexts is None and stream.table_of_chunk is not None:
            wanted["table"] = stream.table_of_chunk[np.array(chunks)]
        values, total = stream.values, stream.count
        if values.size != padded(total):
            values = buffers.empty(padded(total))
            values[:total] = stream.values[:total]
        if values.size > total:  # otherwise they may be the caller's own words
            last = 0 if contexts is not None else int(wanted["table"][-1])
            values[total:] = np.argmax(tables[last])
        coded = kernels().rans_encode(values, wanted, tables, contexts)
        return {
            i: Segment(coded[int(row["offset"]) :][: int(row["length"])], int(row["table"]))
            for i, row in zip(chunks, wanted, strict=True)
            if int(row["length"]) < raw_size(int(row["count"]), stream.bits)
        }

    def decode(
        self,
        stream: StreamValues,
        coded: Bytes,
        located: NDArray[np.void],
        chunks: NDArray[np.int64],
    ) -> None:
        """Decode several chunks in one call."""
        tables, contexts = stream.tables, stream.contexts
        if tables is None or (contexts is None and np.any(located["table"][chunks] >= len(tables))):
            raise IntegrityError("a chunk is coded with a table that the file does not have")
        wanted = np.zeros(len(chunks), SEGMENT)
        wanted["start"] = chunks * stream.per_chunk
        for name in ("offset", "length", "count", "table"):
            wanted[name] = located[name][chunks]
        kernels().rans_decode(coded, wanted, tables, contexts, stream.values)

    def encode_values(self, values: Bytes, bits: int) -> None:
        """Return nothing: values without a table cannot be coded."""

    def decode_values(self, data: Bytes, count: int, bits: int) -> Bytes:
        """Raise IntegrityError: values without a table cannot be decoded."""
        raise IntegrityError("a chunk is coded with a table that the file does not have")


# In the order of their numbers in a file: a new one is a row here and in BUILT_IN_CODERS.
_BUILT_IN: Final = (Raw(), Constant(), Rans(), Zstd())
CODERS: Final[dict[str, Coder]] = {coder.name: coder for coder in _BUILT_IN}
if tuple(CODERS) != BUILT_IN_CODERS:
    raise RuntimeError("the built-in coders are not those that files number")


def _is_coder(found: object) -> TypeGuard[Coder]:
    return isinstance(found, Coder)


# An entry point names a class without arguments, or a function that returns a coder.
PLUGINS: Final = PluginGroup("unweight.coders", "coder", "a Coder", _is_coder, lambda make: make())


@functools.cache
def _plugin(name: str) -> Coder:
    coder = PLUGINS.load(name)
    if coder.name != name or "." not in name:
        whose = f"coder {name!r} of {PLUGINS.distribution(name)}"
        raise UnweightError(f"{whose} calls itself {coder.name!r}; it must be vendor.name in both")
    return coder


def coder_named(name: str) -> Coder:
    """Return the coder called ``name``; raises FormatError where none is installed."""
    if name in CODERS:
        return CODERS[name]
    if name not in PLUGINS.names():
        raise FormatError(
            f"the coder {quoted(name)} is not installed",
            hint="install the package that brings it",
        )
    return _plugin(name)
