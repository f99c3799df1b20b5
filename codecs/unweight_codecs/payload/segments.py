"""Segments: the streams of a span, each coded chunk by chunk, and back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels import buffers, kernels
from unweight_codecs.kernels.operands import Bytes, Contexts, FloatSplit, padded
from unweight_codecs.model import BUILT_IN_CODERS, TensorModel
from unweight_codecs.payload.coders import CODERS, StreamValues, coder_named, raw_size
from unweight_codecs.span import Span

RAW, CONSTANT, RANS, ZSTD = range(len(BUILT_IN_CODERS))
BYTE = 8  # bits


@dataclass(frozen=True, slots=True)
class CodedSegment:
    """Coded bytes, the number of their coder, and their frequency table."""

    data: Bytes
    coder: int
    table: int = 0


def encode_stream(span: Span, model: TensorModel, stream: str, bits: int) -> list[CodedSegment]:
    """Code one stream of a span; one segment per chunk.

    A chunk whose values are all equal is constant. Others take the smallest of what the coder that
    was planned for the stream and the coders of plugins give, or are raw where nothing is smaller.
    """
    if stream == "escape":
        return _encode_escapes(span, model)
    values = _stream_values(span, model, stream, bits, span.streams.get(stream))
    packed = span.packed.get(stream)
    if packed is not None:
        if not _may_be_constant(packed, values):
            return [_raw(packed, values, i) for i in values.chunks]
        if stream not in span.streams:
            unpacked = kernels().unpack_bits(packed, values.count, bits)
            values = _stream_values(span, model, stream, bits, unpacked)
    constant = CODERS["constant"].encode(values, values.chunks)
    varied = [i for i in values.chunks if i not in constant]
    best = {i: CodedSegment(segment.data, CONSTANT) for i, segment in constant.items()}
    limits = {i: raw_size(values.chunk(i).size, bits) for i in varied}
    for name in _coders_to_try(model, stream):
        number = model.coder_names.index(name)
        for i, segment in coder_named(name).encode(values, varied).items():
            if segment.data.size < limits[i]:
                limits[i] = segment.data.size
                best[i] = CodedSegment(segment.data, number, segment.table)
    if packed is None and len(best) < len(values.chunks):
        packed = CODERS["raw"].encode_values(values.values[: values.count], bits)
    return [best[i] if i in best else _raw(packed, values, i) for i in values.chunks]


def _coders_to_try(model: TensorModel, stream: str) -> list[str]:
    planned = model.coders.get(stream)
    return [*([planned] if planned else []), *model.coder_names[len(BUILT_IN_CODERS) :]]


def _stream_values(
    span: Span, model: TensorModel, stream: str, bits: int, values: Bytes | None
) -> StreamValues:
    per_word = model.layout.per_word(stream)
    tables = model.tables.get(stream)
    if stream == "symbol" and model.context_map is not None:
        tables = model.context_map.tables
    table_of_chunk = model.table_of_chunk.get(stream)
    if table_of_chunk is not None:
        table_of_chunk = table_of_chunk[span.first_word // model.chunk_words :]
    return StreamValues(
        np.zeros(0, np.uint8) if values is None else values,
        span.count * per_word,
        model.chunk_words * per_word,
        bits,
        tables,
        _contexts(span, model, stream),
        table_of_chunk,
    )


def _raw(packed: Bytes | None, values: StreamValues, chunk: int) -> CodedSegment:
    if packed is None:
        raise RuntimeError("a raw segment of values that were not packed")
    # Chunks are multiples of 8 values, so each starts at a whole byte.
    first, bits = chunk * values.per_chunk, values.bits
    size = raw_size(min(values.per_chunk, values.count - first), bits)
    return CodedSegment(packed[first * bits // 8 :][:size], RAW)


def _may_be_constant(packed: Bytes, values: StreamValues) -> bool:
    """Whether some chunk begins as a constant one does, so that unpacking it is worth a look.

    Eight values fill ``bits`` bytes, so equal values repeat after so many.
    """
    bits = values.bits
    firsts = (i * values.per_chunk for i in values.chunks)
    starts = (packed[first * bits // 8 :][: 4 * bits].tobytes() for first in firsts)
    return any(start[bits:] == start[:-bits] for start in starts)


def decode_stream(
    span: Span, model: TensorModel, stream: str, bits: int, located: NDArray[np.void]
) -> None:
    """Decode the segments of one stream into ``span.streams``."""
    if stream == "escape":
        _decode_escapes(span, model, located)
        return
    total = span.count * model.layout.per_word(stream)
    values = _stream_values(span, model, stream, bits, buffers.empty(padded(total)))
    numbers = located["coder"]
    for number in np.unique(numbers).tolist():
        coder = coder_named(model.coder_names[number])
        coder.decode(values, span.coded, located, np.flatnonzero(numbers == number))
    decoded = values.values
    if bits < BYTE and _may_be_too_wide(model, values, located) and decoded[:total].max() >> bits:
        raise IntegrityError("a coded segment holds a value that is too wide")
    span.streams[stream] = decoded if stream == "symbol" else decoded[:total]


def _may_be_too_wide(model: TensorModel, values: StreamValues, located: NDArray[np.void]) -> bool:
    """Whether a damaged table or segment could give a value of more bits than the stream has."""
    if values.tables is not None and values.tables[:, 1 << values.bits :].any():
        return True
    names = (model.coder_names[number] for number in np.unique(located["coder"]).tolist())
    return any(name != "rans" and not coder_named(name).keeps_width for name in names)


def segment_bytes(span: Span, segment: np.void) -> Bytes:
    """Return the coded bytes of one segment."""
    return span.coded[int(segment["offset"]) :][: int(segment["length"])]


def check_raw(located: NDArray[np.void], bits: int) -> None:
    """Raise IntegrityError unless raw segments are as long as their values take."""
    if np.any(located["length"] != (located["count"].astype(np.int64) * bits + 7) // 8):
        raise IntegrityError("a raw segment has a wrong length")


def check_escapes(escapes: Bytes, split: FloatSplit) -> None:
    """Raise IntegrityError unless every escape is an exponent of a format that has escapes."""
    exponents = 1 << split.exponent_bits
    values = escapes.view("<u2") if split.escape_bytes > 1 else escapes
    if exponents <= np.iinfo(values.dtype).max and values.max(initial=0) >= exponents:
        raise IntegrityError("an escape is not an exponent of the dtype")
    if values.size and split.window == exponents:
        raise IntegrityError("a chunk has escapes, but the window holds every exponent")


def _contexts(span: Span, model: TensorModel, stream: str) -> Contexts | None:
    """Return the table of every value, where tables are chosen per value."""
    if stream == "symbol":
        contexts = span.streams.get("context")
        return None if contexts is None else Contexts(contexts)
    if stream not in model.contextual:
        return None
    contexts, run = model.layout.contexts(stream, span.streams)
    out = buffers.empty(padded(contexts.size * run) // run)
    out[: contexts.size] = contexts
    out[contexts.size :] = 0
    return Contexts(out, run)


def _escapes_per_chunk(span: Span, model: TensorModel) -> NDArray[np.int64]:
    escaped = span.streams["symbol"][: span.count] >= model.escape_limit
    starts = range(0, span.count, model.chunk_words)
    counts = [np.count_nonzero(escaped[start : start + model.chunk_words]) for start in starts]
    return np.array(counts, np.int64)


def _encode_escapes(span: Span, model: TensorModel) -> list[CodedSegment]:
    width = model.escape_bytes
    known = span.escape_counts
    counts = _escapes_per_chunk(span, model) if known is None else known.astype(np.int64)
    ends = np.cumsum(counts) * width
    escapes = span.streams["escape"]
    starts = np.concatenate([[0], ends[:-1]])
    return [CodedSegment(escapes[start:end], RAW) for start, end in zip(starts, ends, strict=True)]


def _decode_escapes(span: Span, model: TensorModel, located: NDArray[np.void]) -> None:
    width = model.escape_bytes
    lengths = located["length"].astype(np.int64)
    if np.any(located["coder"] != RAW) or np.any(
        lengths != _escapes_per_chunk(span, model) * width
    ):
        raise IntegrityError("a chunk has another number of escapes than its symbols ask for")
    parts = [segment_bytes(span, row) for row in located]
    span.streams["escape"] = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    if model.is_exact:
        check_escapes(span.streams["escape"], model.split)
