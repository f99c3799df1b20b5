"""What kernels are told about chunks: the records of ``kernels/chunks.cu`` and ``streams.cu``."""

from typing import Final

import numpy as np

PACKED, CONSTANT, CODED, EXPANDED = range(4)  # how the values of a stream lie in their buffer
# How each coder leaves them, by its name. A coder that is not here is one that no kernel knows.
KIND_OF_CODER: Final = {"raw": PACKED, "constant": CONSTANT, "rans": CODED}
MAX_PARTS: Final = 8
TEAM: Final = 4  # chunks that a block of threads decodes with the same tables

STATUSES: Final = (
    "done",
    "a segment has an impossible place, length or value",
    "a frequency table does not sum to 4096",
    "a coded chunk does not end where its encoding began",
    "a chunk has another number of escapes than its symbols ask for",
    "a chunk holds a value that does not fit its stream",
)

SOURCE = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u4"),
        ("kind", "u1"),
        ("bits", "u1"),
        ("unused", "<u2"),
    ]
)
CHUNK = np.dtype(
    [
        ("out", "<u8"),
        ("first", "<u8"),
        ("count", "<u4"),
        ("tensor", "<u4"),
        ("number", "<u4"),
        ("step", "<f4"),
        ("symbol", SOURCE),
        ("escape", SOURCE),
        ("parts", SOURCE, (MAX_PARTS,)),
    ]
)
TENSOR = np.dtype(
    [
        ("words", "<u8"),
        ("columns", "<u8"),
        ("row_scales", "<u8"),
        ("column_scales", "<u8"),
        ("context_of_sum", "<u8"),
        ("level_table", "<u8"),
        ("weights", "<u8"),
        ("left", "<u8"),
        ("right", "<u8"),
        ("sm", "<u8"),
        ("nibbles", "<u8"),
        ("row_ptr", "<u8"),
        ("escapes", "<u8"),
        ("tile_rows", "<u4"),
        ("tile_columns", "<u4"),
        ("across", "<u4"),
        ("down", "<u4"),
        ("scale", "<f4"),
        ("rank", "<u4"),
        ("parts", "<u4"),
        ("base", "<u2"),
        ("limit", "<u2"),
        ("exponent_bits", "u1"),
        ("mantissa_bits", "u1"),
        ("top_bits", "u1"),
        ("classes", "u1"),
        ("low_bits", "u1"),
        ("has_table", "u1"),
        ("dtype", "u1"),
        ("unused", "u1"),
        ("bias", "<u4"),
        ("escape_number", "<u4"),
    ]
)
TEAMS = np.dtype([("first", "<u4"), ("number", "<u4"), ("table", "<u4"), ("tables", "<u4")])
STREAM = np.dtype([("out", "<u8"), ("count", "<u4"), ("chunk", "<u4"), ("source", SOURCE)])
