"""Heads of exact payloads made to do harm: every checksum is right, what they say cannot be.

Each case takes a good payload apart, changes one thing and seals it again.
"""

import struct
from collections.abc import Callable

import numpy as np
import pytest
import zstandard

from tests.support.frames import TERABYTE, frame_declaring
from tests.support.hostile import (
    BOUND,
    COLUMNS,
    CONTEXTS,
    GRID,
    KINDS,
    OUTLIER,
    PACK,
    PLAIN,
    ROWS,
    SPEC,
    TILE_SVD,
    Data,
    refused,
    refused_by_head,
    refused_section,
)
from tests.support.payloads import Parts, decoded, head_length, resealed
from unweight_codecs.entropy import frequencies
from unweight_codecs.errors import IntegrityError
from unweight_codecs.tensor_spec import TensorSpec


def table(*values: int) -> bytes:
    """Return a serialised table of the given frequencies."""
    rows = np.zeros((1, 256), np.uint16)
    rows[0, : len(values)] = values
    return frequencies.serialise(rows)


SECTIONS: dict[str, tuple[int, Data]] = {
    "outlier section empty": (OUTLIER, b""),
    "outlier section too long": (OUTLIER, lambda s: s + b"\0"),
    "window beyond the last exponent": (OUTLIER, struct.pack("<HBx", 242, 15)),
    "window far beyond the last exponent": (OUTLIER, struct.pack("<HBx", 65535, 15)),
    "window too wide": (OUTLIER, struct.pack("<HBx", 0, 16)),
    "window empty": (OUTLIER, struct.pack("<HBx", 0, 0)),
    "outlier padding not zero": (OUTLIER, lambda s: s[:3] + b"\1"),
    "grid section empty": (GRID, b""),
    "m of 4": (GRID, lambda s: b"\4" + s[1:]),
    "m of 255": (GRID, lambda s: b"\xff" + s[1:]),
    "grid section cut short": (GRID, lambda s: s[:-1]),
    "grid section cut inside a table": (GRID, lambda s: s[:5]),
    "grid section with a byte too many": (GRID, lambda s: s + b"\0"),
    "more tables than the section holds": (GRID, lambda s: s[:1] + b"\xff" + s[2:]),
    "table that sums to 4095": (GRID, b"\1\1" + table(4095) + b"\0"),
    "table that sums to 4097": (GRID, b"\1\1" + table(4000, 97) + b"\0"),
    "table of 65536 in sum": (GRID, b"\1\1" + table(16384, 16384, 16384, 16384) + b"\0"),
    "tile_svd section empty": (TILE_SVD, b""),
    "K of 1": (TILE_SVD, b"\1"),
    "K of 255 in a byte": (TILE_SVD, b"\xff"),
    "bound section not empty": (BOUND, b"\0"),
    "pack section empty": (PACK, b""),
    "pack section too long": (PACK, lambda s: s + b"\0"),
    "chunks of no words": (PACK, struct.pack("<I", 0)),
    "chunks of 64 words": (PACK, struct.pack("<I", 64)),
    "chunks of 4097 words": (PACK, struct.pack("<I", 4097)),
    "chunks of another size": (PACK, struct.pack("<I", 2048)),
    "chunks of 4 billion words": (PACK, struct.pack("<I", (1 << 32) - 128)),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_sections(case: str) -> None:
    refused_section(PLAIN, *SECTIONS[case])


def scales(section: bytes, which: int, coded: bytes, claimed: int | None = None) -> bytes:
    """Replace the row (0) or column (1) scales of a tile_svd section."""
    at = 1 + 2 * (section[0] - 1)
    for _ in range(which):
        at += 4 + struct.unpack_from("<I", section, at)[0]
    (length,) = struct.unpack_from("<I", section, at)
    size = len(coded) if claimed is None else claimed
    return section[:at] + struct.pack("<I", size) + coded + section[at + 4 + length :]


def zeros(size: int) -> bytes:
    """Return a frame of zeros."""
    return zstandard.compress(bytes(size))


CLASS_MAPS: dict[str, Data] = {
    "K of 0": lambda s: b"\0" + s[1:],
    "K of 1 with everything else": lambda s: b"\1" + s[1:],
    "K one too large": lambda s: bytes([s[0] + 1]) + s[1:],
    "K one too small": lambda s: bytes([s[0] - 1]) + s[1:],
    "K of 17": lambda s: b"\x11" + s[1:],
    "K of 255": lambda s: b"\xff" + s[1:],
    "thresholds not ascending": lambda s: s[:1] + s[3:5] + s[1:3] + s[5:],
    "thresholds twice the same": lambda s: s[:1] + s[1:3] + s[1:3] + s[5:],
    "threshold of 0": lambda s: s[:1] + b"\0\0" + s[3:],
    "threshold of 511": lambda s: s[: 2 * s[0] - 3] + struct.pack("<H", 511) + s[2 * s[0] - 1 :],
    "threshold of 65535": lambda s: s[: 2 * s[0] - 3] + b"\xff\xff" + s[2 * s[0] - 1 :],
    "a row scale too few": lambda s: scales(s, 0, zeros(ROWS - 1)),
    "a row scale too many": lambda s: scales(s, 0, zeros(ROWS + 1)),
    "a column scale too few": lambda s: scales(s, 1, zeros(COLUMNS - 1)),
    "row scales that declare a terabyte": lambda s: scales(s, 0, frame_declaring(TERABYTE)),
    "column scales that declare a terabyte": lambda s: scales(s, 1, frame_declaring(TERABYTE)),
    "row scales that hold less than declared": lambda s: scales(s, 0, frame_declaring(ROWS)),
    "row scales that are no zstd frame": lambda s: scales(s, 0, b"no frame"),
    "row scales without bytes": lambda s: scales(s, 0, b""),
    "row scales of two frames": lambda s: scales(s, 0, zeros(ROWS) + zeros(1)),
    "row scales longer than the section": lambda s: scales(s, 0, b"", 1 << 31),
    "section cut before the tables": lambda s: s[:-200],
    "section cut in the last table": lambda s: s[:-1],
    "a byte after the last table": lambda s: s + b"\0",
    "last table with another sum": lambda s: s[:-1] + bytes([s[-1] ^ 1]),
}


@pytest.mark.parametrize("case", CLASS_MAPS)
def test_class_maps(case: str) -> None:
    refused_section(CONTEXTS, TILE_SVD, CLASS_MAPS[case])


DIRECTORIES: dict[str, Callable[[Parts], None]] = {
    "a row too few": lambda p: p.drop_row(),
    "a row too many": lambda p: setattr(p, "extra_rows", p.directory[:1].tobytes()),
    "padding that is not zero": lambda p: setattr(p, "extra_rows", b"\1"),
    "bytes after the last chunk": lambda p: setattr(p, "surplus", bytes(8)),
    "a chunk too few": lambda p: p.segments.__delitem__(-1),
    "outlier section beyond the head": lambda p: p.lengths.update({OUTLIER: 1 << 31}),
    "pack section beyond the head": lambda p: p.lengths.update({PACK: (1 << 32) - 1}),
    "sections that take the directory": lambda p: p.lengths.update({PACK: 52}),
}


@pytest.mark.parametrize("case", DIRECTORIES)
def test_directories(case: str) -> None:
    parts = PLAIN.parts()
    DIRECTORIES[case](parts)
    refused(parts)


def test_padding_after_the_sections_that_is_not_zero() -> None:
    parts = PLAIN.parts()
    sealed = bytearray(parts.seal())
    length = head_length(bytes(sealed))
    end = 40 + sum(map(len, parts.sections))
    assert end % 8
    sealed[end] = 1
    changed = resealed(bytes(sealed[:length])) + bytes(sealed[length:])
    with pytest.raises(IntegrityError, match="padding after the sections"):
        decoded(parts.pipeline, SPEC, changed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_stays_below_its_limit(kind: str) -> None:
    limit = KINDS[kind].pipeline.head_limit(SPEC)
    assert head_length(KINDS[kind].encoded()) <= limit < 500_000


@pytest.mark.parametrize(
    "shape",
    [
        (1 << 40, COLUMNS),
        (ROWS, 1 << 40),
        (1 << 60,),
        (1 << 59, 1),
        (1, 1 << 59),
        (0, COLUMNS),
        (),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_that_claims_another_shape(kind: str, shape: tuple[int, ...]) -> None:
    """A head is read before anything of the tensor's size is allocated."""
    refused_by_head(KINDS[kind].parts(), shape)


@pytest.mark.parametrize("which", [0, 1], ids=["rows", "columns"])
def test_scales_that_agree_with_a_huge_shape(which: int) -> None:
    """A hostile manifest may claim the size that a hostile frame declares."""
    parts = CONTEXTS.parts()
    huge = scales(parts.sections[TILE_SVD], which, frame_declaring(TERABYTE))
    parts.sections[TILE_SVD] = huge
    refused_by_head(parts, (ROWS, TERABYTE) if which else (TERABYTE, COLUMNS))


def test_rows_too_long_for_contexts() -> None:
    """Contexts take memory per row, so they are refused where an encoder never uses them."""
    parts = CONTEXTS.parts()
    columns, rows = 1 << 21, 16
    parts.sections[PACK] = struct.pack("<I", 131_072)
    section = scales(parts.sections[TILE_SVD], 0, zeros(rows))
    parts.sections[TILE_SVD] = scales(section, 1, zeros(columns))
    parts.empty_chunks(rows * columns // 131_072)
    refused_by_head(parts, (rows, columns), "tile_svd")


@pytest.mark.parametrize("shape", [(ROWS, COLUMNS - 1), (ROWS - 1, COLUMNS)], ids=str)
def test_a_shape_with_as_many_chunks(each_kernel: str, shape: tuple[int, ...]) -> None:
    refused(PLAIN.parts(), TensorSpec("t", "BF16", shape))


@pytest.mark.parametrize("dtype", ["I16", "F16", "F8_E4M3", "F64", "F6_E2M3", "C64"])
def test_a_payload_of_another_dtype(dtype: str) -> None:
    refused(PLAIN.parts(), TensorSpec("t", dtype, (ROWS, COLUMNS)))
