"""Low-rank factors made to do harm: checksums are right, the section is not what an encoder writes.

Each case takes a good payload apart, changes one thing and seals it again.
"""

import struct

import numpy as np
import pytest
import zstandard

from tests.support.frames import TERABYTE, frame_declaring
from tests.support.hostile import (
    BOUND,
    COLUMNS,
    FACTORS,
    PACK,
    ROWS,
    TILE_SVD,
    Data,
    refused_by_head,
    refused_section,
)
from unweight_codecs.bounded.float_words import values_of

HEAD = struct.Struct("<BIIfIII")
TILES = 3 * 2  # of 50 by 50


def test_the_cases_meet_what_they_mean() -> None:
    rank, height, width, *_ = HEAD.unpack_from(FACTORS.parts().sections[TILE_SVD])
    assert (rank, height, width) == (1, 50, 50)


def changed(section: bytes, **changes: int | float | bytes) -> bytes:
    """Change fields of the head of the section, or replace frames with their lengths."""
    names = ("rank", "height", "width", "scale", "weights", "left", "right")
    values = dict(zip(names, HEAD.unpack_from(section), strict=True))
    frames, at = {}, HEAD.size
    for name in names[4:]:
        frames[name] = section[at : at + values[name]]
        at += values[name]
    for name, value in changes.items():
        if isinstance(value, bytes):
            frames[name], value = value, len(value)
        values[name] = value
    return HEAD.pack(*values.values()) + b"".join(frames.values())


def zstd(data: bytes) -> bytes:
    return zstandard.compress(data)


FIELDS: dict[str, dict[str, int | float | bytes]] = {
    "a rank of 2 for factors of 1": {"rank": 2},
    "a rank of 17": {"rank": 17},
    "a rank of 255": {"rank": 255},
    "a height of 0": {"height": 0},
    "a width of 0": {"width": 0},
    "a height above the rows": {"height": ROWS + 1},
    "a width above the columns": {"width": COLUMNS + 1},
    "a tile of 4 billion": {"height": 0xFFFFFFFF, "width": 0xFFFFFFFF},
    "tiles of one word": {"rank": 16, "height": 1, "width": 1},
    "a height that gives fewer tiles": {"height": 64},
    "a width that gives more tiles": {"width": 20},
    "a scale of 0": {"scale": 0.0},
    "a negative scale": {"scale": -0.001},
    "a scale that is NaN": {"scale": np.nan},
    "an infinite scale": {"scale": np.inf},
    "a scale above 2**100": {"scale": 2.0**101},
    "a scale below 2**-100": {"scale": 2.0**-101},
    "a weight of 513": {"weights": zstd(struct.pack("<H", 513) * TILES)},
    "a weight of 65535": {"weights": zstd(b"\xff\xff" * TILES)},
    "a weight too few": {"weights": zstd(bytes(2 * TILES - 2))},
    "half a weight too many": {"weights": zstd(bytes(2 * TILES + 1))},
    "a left factor too many": {"left": zstd(bytes(2 * ROWS + 1))},
    "a right factor too few": {"right": zstd(bytes(3 * COLUMNS - 1))},
    "weights that declare a terabyte": {"weights": frame_declaring(TERABYTE)},
    "left factors that declare a terabyte": {"left": frame_declaring(TERABYTE)},
    "right factors that declare more than they hold": {"right": frame_declaring(3 * COLUMNS)},
    "left factors that are no frame": {"left": b"no frame"},
    "left factors without bytes": {"left": b""},
    "frames longer than the section": {"weights": 0xFFFFFFFF},
}
SECTIONS: dict[str, Data] = {
    "a frame that takes the next one": lambda s: changed(s, left=HEAD.unpack_from(s)[5] + 1),
    "a section cut in its head": lambda s: s[: HEAD.size - 1],
    "a section without frames": lambda s: s[: HEAD.size],
    "a section cut in the last frame": lambda s: s[:-1],
    "a byte after the last frame": lambda s: s + b"\0",
}


@pytest.mark.parametrize("case", [*FIELDS, *SECTIONS])
def test_factors(case: str) -> None:
    def with_fields(section: bytes) -> bytes:
        return changed(section, **FIELDS[case])

    refused_section(FACTORS, TILE_SVD, SECTIONS.get(case, with_fields))


def test_the_largest_factors_decode(each_kernel: str) -> None:
    """Sums, products and values stay finite at the end of every range."""
    parts, rank = FACTORS.parts(), 16
    parts.sections[TILE_SVD] = changed(
        parts.sections[TILE_SVD],
        rank=rank,
        scale=2.0**100,
        weights=zstd(struct.pack("<H", 512) * TILES * rank),
        left=zstd(b"\x80" * ROWS * 2 * rank),
        right=zstd(b"\x80" * COLUMNS * 3 * rank),
    )
    parts.sections[BOUND] = struct.pack("<ff", 2.0**100, 2.0**100)
    decoded = np.frombuffer(parts.decode(), np.uint8)
    escaped = ~np.isfinite(values_of(FACTORS.weights(), "BF16"))
    assert np.isfinite(values_of(decoded, "BF16")[~escaped]).all()


def test_rows_too_long_for_factors() -> None:
    """A prediction takes memory per row, so it is refused where an encoder never makes one."""
    parts = FACTORS.parts()
    rows, columns = 32, 1 << 21
    chunks = rows * columns // 131_072
    parts.sections[PACK] = struct.pack("<I", 131_072)
    parts.sections[BOUND] = struct.pack("<f", 1.0) * chunks
    parts.sections[TILE_SVD] = changed(
        parts.sections[TILE_SVD],
        height=rows,
        width=columns,
        weights=zstd(bytes(2)),
        left=zstd(bytes(rows)),
        right=zstd(bytes(columns)),
    )
    parts.empty_chunks(chunks)
    refused_by_head(parts, (rows, columns), "tile_svd")
