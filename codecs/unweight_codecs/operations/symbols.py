"""Count what the first stream of a coded tensor holds, model by model."""

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.archive import ArchiveReader
from unweight_codecs.archive.reader import CodedHead
from unweight_codecs.codec import Block
from unweight_codecs.entropy.directory import LENGTH_BITS, TABLE_BITS
from unweight_codecs.kernels.base import ALPHABET, Bytes, FloatFormat


def count_symbols(archive: ArchiveReader, head: CodedHead) -> NDArray[np.int64]:
    """Return counts of shape (models, 256), a model being a context or a frequency table.

    The symbols are those of a float tensor, or the bytes of the lowest plane of another one.
    """
    model = head.model
    groups = len(model.classes.tables) if model.classes else 1 << TABLE_BITS
    counts = np.zeros(groups * ALPHABET, np.int64)
    for chunk in archive.spans(head):
        words = archive.decode(head, chunk)
        symbols = _symbols(words, head)
        first = chunk * model.chunk_words
        index = _models(head, first, len(symbols)) * ALPHABET + symbols
        counts += np.bincount(index, minlength=len(counts))
    return counts.reshape(groups, ALPHABET)


def entropy_bits(counts: NDArray[np.int64]) -> float:
    """Return the order-0 entropy in bits per value, each row under its own distribution."""
    totals = counts.sum(axis=1, keepdims=True)
    share = np.where(counts > 0, counts / np.maximum(totals, 1), 1)
    return float(-(counts * np.log2(share)).sum() / max(int(totals.sum()), 1))


def _symbols(words: Bytes, head: CodedHead) -> NDArray[np.int64]:
    model, layout = head.model, head.model.layout
    if not layout.is_float:
        return words.reshape(-1, layout.word_bytes)[:, 0].astype(np.int64)
    field = words.view(f"<u{layout.word_bytes}")
    value = (field >> field.dtype.type(layout.mantissa_bits - model.top_bits)).astype(np.int64)
    return _windowed(value & ((1 << (layout.exponent_bits + model.top_bits)) - 1), model.form)


def _windowed(value: NDArray[np.int64], form: FloatFormat) -> NDArray[np.int64]:
    symbol = value - (form.base << form.top_bits)
    escape = form.escape_limit | value & ((1 << form.top_bits) - 1)
    return np.where((symbol < 0) | (symbol >= form.escape_limit), escape, symbol)


def _models(head: CodedHead, first: int, count: int) -> NDArray[np.int64]:
    """Return the model of each of ``count`` symbols from word ``first``."""
    model = head.model
    if model.classes:
        block = Block(first, count, np.zeros(0, np.uint8))
        for stage in head.pipeline.stages:
            stage.prepare(block, model)
        return block.streams["class"][:count].astype(np.int64)
    chunks = (first + np.arange(count)) // model.chunk_words
    tables = head.directory["segments"][:, 0] >> LENGTH_BITS & ((1 << TABLE_BITS) - 1)
    return tables[chunks].astype(np.int64)
