"""The chunk directory: where each segment of each chunk lies and how it is coded."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.model import BUILT_IN_CODERS, TensorModel
from unweight_codecs.span import Span

LENGTH_BITS, TABLE_BITS = 20, 8
MIN_RECORD_BYTES: Final = 12  # a row has at least one stream

LOCATED = np.dtype(
    [("offset", "<u8"), ("length", "<u4"), ("table", "<u4"), ("coder", "u1"), ("count", "<u4")]
)


def directory_dtype(model: TensorModel) -> np.dtype[np.void]:
    """Return the record of one chunk: u64 checksum, then a u32 per stream."""
    return np.dtype([("checksum", "<u8"), ("segments", "<u4", (len(model.streams()),))])


def record_bytes(streams: int) -> int:
    """Return the bytes of the record of one chunk."""
    return 8 + 4 * streams


def entry(coder: int, table: int, length: int) -> int:
    """Pack a directory entry: length in the low 20 bits, then 8 bits of table, 4 of coder.

    ``coder`` is a position in ``TensorModel.coder_names``.
    """
    if length >> LENGTH_BITS or table >> TABLE_BITS:
        raise ValueError("a segment does not fit its directory entry")
    return coder << (LENGTH_BITS + TABLE_BITS) | table << LENGTH_BITS | length


def chunk_lengths(directory: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the bytes of every chunk: its segments, each padded to 8."""
    lengths = (directory["segments"] & ((1 << LENGTH_BITS) - 1)).astype(np.int64)
    return np.asarray(((lengths + 7) // 8 * 8).sum(axis=1), np.int64)


def parse_directory(span: Span, model: TensorModel) -> NDArray[np.void]:
    """Return the segments of a span's chunks, shape (chunks, streams); offsets index ``coded``.

    Raises IntegrityError for an unknown coder, or a table where the coder has none.
    """
    entries = span.directory["segments"]
    located = np.zeros(entries.shape, LOCATED)
    located["length"] = entries & ((1 << LENGTH_BITS) - 1)
    located["table"] = entries >> LENGTH_BITS & ((1 << TABLE_BITS) - 1)
    located["coder"] = entries >> (LENGTH_BITS + TABLE_BITS)
    if np.any(located["coder"] >= len(model.coder_names)):
        raise IntegrityError("a chunk uses an unknown coder")
    if np.any(located["table"][located["coder"] != BUILT_IN_CODERS.index("rans")]):
        raise IntegrityError("a chunk names a table for a coder that has none")
    sizes = (located["length"].astype(np.int64) + 7) // 8 * 8
    located["offset"] = np.cumsum(sizes.reshape(-1)).reshape(sizes.shape) - sizes
    starts = np.arange(len(entries)) * model.chunk_words
    words = np.minimum(span.count - starts, model.chunk_words)
    located["count"] = np.outer(words, [model.layout.per_word(name) for name in model.streams()])
    return located
