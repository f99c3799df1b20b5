"""Levels, steps and chunks of error-bounded payloads made to do harm, behind right checksums.

Each case takes a good payload apart, changes one thing and seals it again.
"""

import struct

import numpy as np
import pytest
import zstandard

from tests.support import bounded
from tests.support.frames import TERABYTE, frame_declaring
from tests.support.hostile import (
    BOUND,
    CHUNK,
    COLUMNS,
    GRID,
    LOW_BITS,
    OUTLIER,
    PACK,
    ROWS,
    SPEC,
    TABLE,
    TILE_SVD,
    Data,
    Segment,
    refused,
    refused_section,
    refused_segment,
)
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

SYMBOL, LOW, ESCAPE = range(3)  # streams


def test_the_cases_meet_what_they_mean() -> None:
    parts, table = LOW_BITS.parts(), TABLE.parts().sections[GRID]
    assert parts.sections[GRID][0] > 0  # low bits
    assert [len(chunk) for chunk in parts.segments] == [3, 3]
    assert all(len(chunk[ESCAPE]) for chunk in parts.segments)
    assert (parts.directory["segments"][:, SYMBOL] >> 28 == BUILT_IN_CODERS.index("rans")).all()
    assert (table[0], table[2]) == (0, 1)


SECTIONS: dict[str, tuple[int, Data]] = {
    "outlier section not empty": (OUTLIER, b"\0"),
    "grid section empty": (GRID, b""),
    "grid section of three bytes": (GRID, lambda s: s[:3]),
    "9 low bits": (GRID, lambda s: b"\x09" + s[1:]),
    "255 low bits": (GRID, lambda s: b"\xff" + s[1:]),
    "a limit of 0": (GRID, lambda s: s[:1] + b"\0" + s[2:]),
    "an unknown kind of levels": (GRID, lambda s: s[:2] + b"\2" + s[3:]),
    "a table beside low bits": (GRID, lambda s: s[:2] + b"\1" + s[3:]),
    "a table that is not there": (GRID, lambda s: b"\0\xff\1" + s[3:]),
    "a grid section without frequency tables": (GRID, lambda s: s[:3] + b"\0"),
    "more frequency tables than there are": (GRID, lambda s: s[:3] + b"\xff" + s[4:]),
    "a frequency table cut short": (GRID, lambda s: s[:-1]),
    "a byte after the last frequency table": (GRID, lambda s: s + b"\0"),
    "tile_svd section empty": (TILE_SVD, b""),
    "tile_svd section of a rank alone": (TILE_SVD, b"\1"),
    "tile_svd section off and longer": (TILE_SVD, b"\0\0"),
    "bound section empty": (BOUND, b""),
    "a step too few": (BOUND, lambda s: s[:-4]),
    "a step too many": (BOUND, lambda s: s + s[:4]),
    "a step of three bytes": (BOUND, lambda s: s[:-1]),
    "pack section empty": (PACK, b""),
    "chunks of no words": (PACK, struct.pack("<I", 0)),
    "chunks of another size": (PACK, struct.pack("<I", 2048)),
    "chunks of 4 billion words": (PACK, struct.pack("<I", (1 << 32) - 128)),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_sections(case: str) -> None:
    refused_section(LOW_BITS, *SECTIONS[case])


STEPS = {
    "NaN": np.nan,
    "infinite": np.inf,
    "minus infinity": -np.inf,
    "negative": -0.01,
    "subnormal": 1e-40,
    "below 2**-100": 2.0**-100 * (1 - 2.0**-24),
    "above 2**100": 2.0**100 * (1 + 2.0**-23),
    "the largest float": 3.4e38,
}


@pytest.mark.parametrize("case", STEPS)
def test_steps(case: str) -> None:
    refused_section(LOW_BITS, BOUND, lambda s: s[:4] + struct.pack("<f", STEPS[case]))


@pytest.mark.parametrize("step", [0.0, -0.0, 2.0**-100, 2.0**100])
def test_steps_at_the_limits_decode(each_kernel: str, step: float) -> None:
    parts = LOW_BITS.parts()
    parts.sections[BOUND] = struct.pack("<ff", step, step)
    assert len(parts.decode()) == SPEC.nbytes


LEVELS: dict[str, Data] = {
    "a level above 2**23": lambda s: s[:3] + struct.pack("<i", (1 << 23) + 1) + s[7:],
    "a level below -2**23": lambda s: s[:3] + struct.pack("<i", -(1 << 23) - 1) + s[7:],
    "the lowest level there is": lambda s: s[:3] + struct.pack("<i", -(1 << 31)) + s[7:],
    "a level too few": lambda s: s[:3] + s[7:],
    "a level too many": lambda s: s[:3] + bytes(4) + s[3:],
    "a table longer than the section": lambda s: s[:1] + b"\xff" + s[2:],
    "a table cut short": lambda s: s[:5],
    "a table and nothing after it": lambda s: s[: 3 + 4 * s[1]],
}


@pytest.mark.parametrize("case", LEVELS)
def test_tables_of_levels(case: str) -> None:
    refused_section(TABLE, GRID, LEVELS[case])


def test_levels_in_any_order_decode(each_kernel: str) -> None:
    parts = TABLE.parts()
    section = parts.sections[GRID]
    number = section[1]
    levels = np.frombuffer(section, "<i4", number, 3)[::-1].tobytes()
    parts.sections[GRID] = section[:3] + levels + section[3 + 4 * number :]
    assert len(parts.decode()) == SPEC.nbytes


SEGMENTS: dict[str, Segment] = {
    "an escape too many": (ESCAPE, "raw", 0, lambda s: s + bytes(2)),
    "an escape too few": (ESCAPE, "raw", 0, lambda s: s[:-2]),
    "half an escape too few": (ESCAPE, "raw", 0, lambda s: s[:-1]),
    "no escapes": (ESCAPE, "raw", 0, b""),
    "constant escapes": (ESCAPE, "constant", 0, b"\0"),
    "escapes by zstd": (ESCAPE, "zstd", 0, zstandard.compress),
    "escapes by rans": (ESCAPE, "rans", 0, bytes(128)),
    "symbols that are all kept": (SYMBOL, "constant", 0, b"\xff"),
    "symbols of which none is kept": (SYMBOL, "constant", 0, b"\0"),
    "symbols of an unknown table": (SYMBOL, "rans", 255, lambda s: s),
    "symbols cut short": (SYMBOL, "rans", 0, lambda s: s[:-2]),
    "raw symbols a byte short": (SYMBOL, "raw", 0, bytes(CHUNK - 1)),
    "low bits by rans": (LOW, "rans", 0, bytes(128)),
    "low bits a byte short": (LOW, "raw", 0, lambda s: s[:-1]),
    "low bits too wide": (LOW, "constant", 0, b"\xff"),
    "low bits too wide by zstd": (LOW, "zstd", 0, zstandard.compress(b"\xff" * CHUNK)),
    "low bits that declare a terabyte": (LOW, "zstd", 0, frame_declaring(TERABYTE)),
    "an unknown coder": (SYMBOL, 7, 0, lambda s: s),
}


@pytest.mark.parametrize("case", SEGMENTS)
def test_chunks(each_kernel: str, case: str) -> None:
    refused_segment(LOW_BITS, SEGMENTS[case])


@pytest.mark.parametrize("dtype", sorted(DTYPES.keys() - set(bounded.FLOATS)))
def test_a_tensor_of_another_dtype(dtype: str) -> None:
    elements = SPEC.elements * 16 // DTYPES[dtype].bits
    for shape in ((elements // 64, 64), (ROWS, COLUMNS)):
        refused(LOW_BITS.parts(), TensorSpec("t", dtype, shape))


def test_a_block_type() -> None:
    refused(LOW_BITS.parts(), TensorSpec("t", "Q4_0", (8192, 32)))
