"""Segments: one stream of one chunk, coded. The coders raw, constant, rANS and zstd."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.entropy import zstd
from unweight_codecs.entropy.planning import ZSTD_LEVEL
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels import buffers, kernels
from unweight_codecs.kernels.operands import (
    SEGMENT,
    Bytes,
    Contexts,
    FloatSplit,
    Frequencies,
    padded,
)
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import CODERS, entry
from unweight_codecs.span import Span

RANS_OVERHEAD_BYTES = 96  # 32 states of 4 bytes, of which about 32 hold payload

RAW, CONSTANT, RANS, ZSTD = range(len(CODERS))
BYTE = 8  # bits


@dataclass(frozen=True, slots=True)
class Segment:
    """Coded bytes and their directory entry."""

    data: Bytes
    entry: int


def encode_stream(span: Span, model: TensorModel, stream: str, bits: int) -> list[Segment]:
    """Code one stream of a span; one segment per chunk."""
    if stream == "escape":
        return _encode_escapes(span, model)
    count, step = _values(span, model, stream)
    parts = [slice(first, min(first + step, count)) for first in range(0, count, step)]
    packed = span.packed.get(stream)
    if packed is not None and not _may_be_constant(packed, parts, bits):
        return [_raw(packed, part, bits) for part in parts]
    values = span.streams.get(stream)
    if values is None:
        values = kernels().unpack_bits(span.packed[stream], count, bits)
    constant = [_is_constant(values[part]) for part in parts]
    varied = [i for i in range(len(parts)) if not constant[i]]
    coded: dict[int, Segment] = {}
    if model.coders.get(stream) == "rans":
        coded = _encode_rans(span, model, stream, varied)
    elif model.coders.get(stream) == "zstd":
        coded = {i: _encode_zstd(values[parts[i]]) for i in varied}
    out = []
    for i, part in enumerate(parts):
        if constant[i]:
            out.append(Segment(values[part.start : part.start + 1], entry("constant", 0, 1)))
        elif i in coded and coded[i].data.size < raw_size(part.stop - part.start, bits):
            out.append(coded[i])
        else:
            if packed is None:
                used = values[:count]
                packed = used if bits == 8 else kernels().pack_bits(used, bits)
            out.append(_raw(packed, part, bits))
    return out


def _values(span: Span, model: TensorModel, stream: str) -> tuple[int, int]:
    """Return how many values a stream has in a span and in one of its full chunks."""
    per_word = model.layout.per_word(stream)
    return span.count * per_word, model.chunk_words * per_word


def _raw(packed: Bytes, part: slice, bits: int) -> Segment:
    # Chunks are multiples of 8 values, so each starts at a whole byte.
    start, size = part.start * bits // 8, raw_size(part.stop - part.start, bits)
    return Segment(packed[start : start + size], entry("raw", 0, size))


def _encode_zstd(values: Bytes) -> Segment:
    data = zstd.compress(values.tobytes(), ZSTD_LEVEL)
    return Segment(np.frombuffer(data, np.uint8), entry("zstd", 0, len(data)))


def _may_be_constant(packed: Bytes, parts: list[slice], bits: int) -> bool:
    """Whether some chunk begins as a constant one does, so that unpacking it is worth a look.

    Eight values fill ``bits`` bytes, so equal values repeat after so many.
    """
    starts = (packed[part.start * bits // 8 :][: 4 * bits].tobytes() for part in parts)
    return any(start[bits:] == start[:-bits] for start in starts)


def decode_stream(
    span: Span, model: TensorModel, stream: str, bits: int, located: NDArray[np.void]
) -> None:
    """Decode the segments of one stream into ``span.streams``."""
    if stream == "escape":
        _decode_escapes(span, model, located)
        return
    total, step = _values(span, model, stream)
    values = buffers.empty(padded(total))
    for i, segment in enumerate(located):
        part = values[i * step : i * step + int(segment["count"])]
        data = segment_bytes(span, segment)
        if segment["coder"] == RAW:
            if data.size != raw_size(part.size, bits):
                raise IntegrityError("a raw segment has a wrong length")
            part[:] = data if bits == 8 else kernels().unpack_bits(data, part.size, bits)
        elif segment["coder"] == CONSTANT:
            if data.size != 1 or int(data[0]) >> bits:
                raise IntegrityError("a constant segment has a wrong length or value")
            part[:] = data[0]
        elif segment["coder"] == ZSTD:
            part[:] = np.frombuffer(zstd.decompress(data.tobytes(), part.size), np.uint8)
    coders = located["coder"] == RANS
    if coders.any():
        _decode_rans(span, model, stream, located, np.flatnonzero(coders), values)
    if bits < 8 and _may_be_too_wide(model, stream, bits, located) and values[:total].max() >> bits:
        raise IntegrityError("a coded segment holds a value that is too wide")
    span.streams[stream] = values if stream == "symbol" else values[:total]


def _may_be_too_wide(model: TensorModel, stream: str, bits: int, located: NDArray[np.void]) -> bool:
    """Whether a damaged table or zstd frame could give a value of more than ``bits`` bits."""
    tables = model.tables.get(stream)
    wide = tables is not None and bool(tables[:, 1 << bits :].any())
    return wide or bool(np.any(located["coder"] == ZSTD))


def segment_bytes(span: Span, segment: np.void) -> Bytes:
    """Return the coded bytes of one segment."""
    return span.coded[int(segment["offset"]) :][: int(segment["length"])]


def check_raw(located: NDArray[np.void], bits: int) -> None:
    """Raise IntegrityError unless raw segments are as long as their values take."""
    if np.any(located["length"] != (located["count"].astype(np.int64) * bits + 7) // 8):
        raise IntegrityError("a raw segment has a wrong length")


def check_escapes(escapes: Bytes, form: FloatSplit) -> None:
    """Raise IntegrityError unless every escape is an exponent of a format that has escapes."""
    exponents = 1 << form.exponent_bits
    values = escapes.view("<u2") if form.escape_bytes > 1 else escapes
    if exponents <= np.iinfo(values.dtype).max and values.max(initial=0) >= exponents:
        raise IntegrityError("an escape is no exponent of the dtype")
    if values.size and form.window == exponents:
        raise IntegrityError("a chunk has escapes, but the window holds every exponent")


def raw_size(count: int, bits: int) -> int:
    """Return the bytes of ``count`` densely packed values."""
    return -(-count * bits // 8)


def _is_constant(values: Bytes) -> bool:
    # Most streams are not: a few probes decide without a pass over the data.
    probes = values[:: max(1, values.size // 8)]
    return bool(np.all(probes == values[0]) and np.all(values == values[0]))


def _tables(model: TensorModel, stream: str) -> Frequencies | None:
    if stream == "symbol" and model.context_map is not None:
        return model.context_map.tables
    return model.tables.get(stream)


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


def _encode_rans(
    span: Span, model: TensorModel, stream: str, varied: list[int]
) -> dict[int, Segment]:
    tables = _tables(model, stream)
    if tables is None or not varied:
        return {}
    bits = model.streams()[stream]
    contexts = _contexts(span, model, stream)
    first_chunk = span.first_word // model.chunk_words
    wanted = np.zeros(len(varied), SEGMENT)
    total, step = _values(span, model, stream)
    wanted["start"] = np.array(varied) * step
    wanted["count"] = np.minimum(total - wanted["start"].astype(np.int64), step)
    if contexts is None:
        wanted["table"] = model.table_of_chunk[stream][first_chunk + np.array(varied)]
    values = span.streams[stream]
    if values.size != padded(total):
        values = buffers.empty(padded(total))
        values[:total] = span.streams[stream]
    if values.size > total:  # otherwise they may be the caller's own words
        values[total:] = np.argmax(tables[0 if contexts is not None else int(wanted["table"][-1])])
    coded = kernels().rans_encode(values, wanted, tables, contexts)
    return {
        i: Segment(
            coded[int(row["offset"]) :][: int(row["length"])],
            entry("rans", int(row["table"]), int(row["length"])),
        )
        for i, row in zip(varied, wanted, strict=True)
        if int(row["length"]) < raw_size(int(row["count"]), bits)  # longer ones may not fit it
    }


def _decode_rans(
    span: Span,
    model: TensorModel,
    stream: str,
    located: NDArray[np.void],
    which: NDArray[np.int64],
    values: Bytes,
) -> None:
    tables = _tables(model, stream)
    if tables is None:
        raise IntegrityError("a chunk is coded with a table that the file does not have")
    contexts = _contexts(span, model, stream)
    if contexts is None and np.any(located["table"][which] >= len(tables)):
        raise IntegrityError("a chunk is coded with a table that the file does not have")
    wanted = np.zeros(len(which), SEGMENT)
    wanted["start"] = which * _values(span, model, stream)[1]
    for name in ("offset", "length", "count", "table"):
        wanted[name] = located[name][which]
    kernels().rans_decode(span.coded, wanted, tables, contexts, values)


def _escapes_per_chunk(span: Span, model: TensorModel) -> NDArray[np.int64]:
    escaped = span.streams["symbol"][: span.count] >= model.escape_limit
    starts = range(0, span.count, model.chunk_words)
    counts = [np.count_nonzero(escaped[start : start + model.chunk_words]) for start in starts]
    return np.array(counts, np.int64)


def _encode_escapes(span: Span, model: TensorModel) -> list[Segment]:
    width = model.escape_bytes
    known = span.escape_counts
    counts = _escapes_per_chunk(span, model) if known is None else known.astype(np.int64)
    ends = np.cumsum(counts) * width
    escapes = span.streams["escape"]
    starts = np.concatenate([[0], ends[:-1]])
    return [
        Segment(escapes[start:end], entry("raw", 0, int(end - start)))
        for start, end in zip(starts, ends, strict=True)
    ]


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
        check_escapes(span.streams["escape"], model.form)
