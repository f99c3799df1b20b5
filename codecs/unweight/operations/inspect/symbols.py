"""Count what the main stream of a coded tensor holds, model by model."""

import numpy as np
from numpy.typing import NDArray

from unweight.archive import ArchiveReader
from unweight_codecs.accelerators import PayloadHead
from unweight_codecs.kernels.operands import ALPHABET, Bytes, FloatSplit
from unweight_codecs.layouts import streams_of
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import LENGTH_BITS, TABLE_BITS
from unweight_codecs.span import Span


def main_stream(model: TensorModel) -> str:
    """Return the stream to look at: symbols, the widest field of blocks, or the lowest plane."""
    streams, layout = model.streams(), model.layout
    if not layout.fields:
        return next(iter(streams))
    return max(streams, key=lambda stream: streams[stream] * layout.per_word(stream))


def count_symbols(archive: ArchiveReader, head: PayloadHead) -> NDArray[np.int64]:
    """Return counts of the main stream, shape (models, 256), a model being a context or a table."""
    model = head.model
    groups = len(model.context_map.tables) if model.context_map else 1 << TABLE_BITS
    counts = np.zeros(groups * ALPHABET, np.int64)
    for chunk in range(model.chunks):  # one at a time: a block may have hundreds of values
        if model.is_exact:
            symbols, models = _symbols(archive.decode(head, chunk, 1), head, chunk)
        else:  # words do not tell which symbols they were decoded from
            symbols = archive.streams(head, chunk)["symbol"].astype(np.int64)
            models = _table_of(head, chunk, "symbol")
        counts += np.bincount(models * ALPHABET + symbols, minlength=len(counts))
    return counts.reshape(groups, ALPHABET)


def entropy_bits(counts: NDArray[np.int64]) -> float:
    """Return the order-0 entropy in bits per value, each row under its own distribution."""
    totals = counts.sum(axis=1, keepdims=True)
    share = np.where(counts > 0, counts / np.maximum(totals, 1), 1)
    return float(-(counts * np.log2(share)).sum() / max(int(totals.sum()), 1))


def _symbols(
    words: Bytes, head: PayloadHead, chunk: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the values of the main stream in a chunk and the model of each."""
    model, layout = head.model, head.model.layout
    if not layout.is_float:
        stream, streams = main_stream(model), streams_of(words, layout)
        values = streams[stream].astype(np.int64)
        if stream in model.contextual:
            contexts, run = layout.contexts(stream, streams)
            return values, contexts.repeat(run).astype(np.int64)
        return values, _table_of(head, chunk, stream)
    field = words.view(f"<u{layout.word_bytes}")
    value = (field >> field.dtype.type(layout.mantissa_bits - model.top_bits)).astype(np.int64)
    value &= (1 << (layout.exponent_bits + model.top_bits)) - 1
    symbols = _windowed(value, model.split)
    if model.context_map:
        return symbols, _contexts(head, chunk, len(symbols))
    return symbols, _table_of(head, chunk, "symbol")


def _windowed(value: NDArray[np.int64], split: FloatSplit) -> NDArray[np.int64]:
    symbol = value - (split.base << split.top_bits)
    escape = split.escape_limit | value & ((1 << split.top_bits) - 1)
    return np.where((symbol < 0) | (symbol >= split.escape_limit), escape, symbol)


def _contexts(head: PayloadHead, chunk: int, count: int) -> NDArray[np.int64]:
    """Return the context of each of the ``count`` symbols of a chunk."""
    span = Span(chunk * head.model.chunk_words, count, np.zeros(0, np.uint8))
    for stage in head.pipeline.stages:
        stage.prepare(span, head.model)
    return span.streams["context"][:count].astype(np.int64)


def _table_of(head: PayloadHead, chunk: int, stream: str) -> NDArray[np.int64]:
    """Return the number of the table that codes a stream of a chunk."""
    entry = head.directory["segments"][chunk, list(head.model.streams()).index(stream)]
    return np.asarray(entry >> LENGTH_BITS & ((1 << TABLE_BITS) - 1), np.int64)
