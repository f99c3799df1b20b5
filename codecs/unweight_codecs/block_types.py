"""The quantised types of GGML, a row each: what is called what, how large, and which bits are what.

A block holds some values of a kind: scales, mins, quants, high bits, signs, codebook indexes. These
are its fields; each becomes a stream of its own. Where GGML packs a value into several places, the
bit ranges are listed. A type without fields is one field of bytes.

Source of the layouts: the block structures of ggml (ggml-common.h), as the ``gguf`` package
reads them.
"""

import re
from dataclasses import dataclass, field

BYTE = 8  # bits


@dataclass(frozen=True, slots=True)
class BitRange:
    """``width`` bits of a byte from bit ``shift`` up; they lie at bit ``at`` of the value."""

    byte: int
    shift: int
    width: int
    at: int = 0


@dataclass(frozen=True, slots=True, eq=False)  # compared as objects: they are keys of caches
class Field:
    """Values of one kind in a block.

    Attributes:
        name: Name of the stream; one of more than 8 bits becomes a stream per byte.
        bits: Bits of a value: 1 to 8, 16 or 32.
        bytes: Bytes of the block that hold the values, densely packed from the lowest bit up.
        bit_ranges: Instead of dense bytes, where the bits of every value lie.
    """

    name: str
    bits: int
    bytes: tuple[int, ...]
    bit_ranges: tuple[tuple[BitRange, ...], ...] = field(default=())

    @property
    def count(self) -> int:
        """Values per block."""
        return len(self.bit_ranges) or len(self.bytes) * BYTE // self.bits

    def streams(self) -> dict[str, int]:
        """Return the streams of the field with the bits of their values."""
        if self.bits <= BYTE:
            return {self.name: self.bits}
        return {f"{self.name}.{k}": BYTE for k in range(self.bits // BYTE)}


@dataclass(frozen=True, slots=True)
class BlockType:
    """A quantised type.

    Attributes:
        name: Name as GGML writes it, e.g. ``"Q4_K"``.
        ggml_id: Number in the tensor table of a GGUF file.
        elements: Elements of one block; a row consists of whole blocks.
        bytes: Bytes of one block.
        fields: The fields, in the order of their streams; together they are all bits of the block.
    """

    name: str
    ggml_id: int
    elements: int
    bytes: int
    fields: tuple[Field, ...]


def _row(name: str, ggml_id: int, elements: int, size: int, fields: str = "") -> BlockType:
    """Return a type from its fields in the notation of ``specs/blocks.md``, e.g. ``q:4@2-17``.

    Where that says ``pieces``, the bit ranges of the values follow here at once, joined by commas.
    """
    texts = fields.split() or [f"byte:{BYTE}@0-{size - 1}"]
    return BlockType(name, ggml_id, elements, size, tuple(map(_field, texts)))


def _field(text: str) -> Field:
    name, bits, where = re.split("[:@]", text)
    if "." in where:
        return Field(name, int(bits), (), tuple(map(_bit_ranges, where.split(","))))
    return Field(name, int(bits), tuple(byte for run in where.split("+") for byte in _bytes(run)))


def _bytes(run: str) -> range:
    """Return the bytes of ``5``, ``2-17`` or ``2-64/2``, which is every second one."""
    ends, _, step = run.partition("/")
    first, _, last = ends.partition("-")
    return range(int(first), int(last or first) + 1, int(step or 1))


def _bit_ranges(value: str) -> tuple[BitRange, ...]:
    """Return the bit ranges of a value, the lowest bits first: ``12.0-3+4.6-7``."""
    ranges, at = [], 0
    for text in value.split("+"):
        byte, low, high = map(int, re.split("[.-]", text))
        ranges.append(BitRange(byte, low, high - low + 1, at))
        at += high - low + 1
    return tuple(ranges)


# Values of six bits, packed into twelve bytes: sixteen scales, or eight scales and eight mins.
_Q3_K_SCALES = "scale:6@" + ",".join(
    f"{96 + k % 8}.{k // 8 * 4}-{k // 8 * 4 + 3}+{104 + k % 4}.{k // 4 * 2}-{k // 4 * 2 + 1}"
    for k in range(16)
)
_SCALES_AND_MINS = " ".join(
    f"{name}:6@"
    + ",".join(
        [f"{first + k}.0-5" for k in range(4)]
        + [f"{12 + k}.{low}-{low + 3}+{first + k}.6-7" for k in range(4)]
    )
    for name, first, low in (("scale", 4, 0), ("min", 8, 4))
)

# Some were dropped from GGML again, but files with them remain. Ids are never used twice.
BLOCK_TYPES = (
    _row("Q1_0", 41, 128, 18, "d:16@0-1 q:1@2-17"),
    _row("Q2_0", 42, 64, 18, "d:16@0-1 q:2@2-17"),
    _row("Q4_0", 2, 32, 18, "d:16@0-1 q:4@2-17"),
    _row("Q4_1", 3, 32, 20, "d:16@0-1 m:16@2-3 q:4@4-19"),
    _row("Q5_0", 6, 32, 22, "d:16@0-1 high:1@2-5 q:4@6-21"),
    _row("Q5_1", 7, 32, 24, "d:16@0-1 m:16@2-3 high:1@4-7 q:4@8-23"),
    _row("Q8_0", 8, 32, 34, "d:16@0-1 q:8@2-33"),
    _row("Q8_1", 9, 32, 40, "d:32@0-3 sum:32@4-7 q:8@8-39"),
    _row("Q2_K", 10, 256, 84, "scale:4@0-15 q:2@16-79 d:16@80-81 dmin:16@82-83"),
    _row("Q3_K", 11, 256, 110, f"high:1@0-31 q:2@32-95 {_Q3_K_SCALES} d:16@108-109"),
    _row("Q4_K", 12, 256, 144, f"d:16@0-1 dmin:16@2-3 {_SCALES_AND_MINS} q:4@16-143"),
    _row("Q5_K", 13, 256, 176, f"d:16@0-1 dmin:16@2-3 {_SCALES_AND_MINS} high:1@16-47 q:4@48-175"),
    _row("Q6_K", 14, 256, 210, "q:4@0-127 high:2@128-191 scale:8@192-207 d:16@208-209"),
    _row("Q8_K", 15, 256, 292, "d:32@0-3 q:8@4-259 sum:16@260-291"),
    _row("IQ1_S", 19, 256, 50, "d:16@0-1 index:8@2-33 high:16@34-49"),
    _row("IQ1_M", 29, 256, 56, "index:8@0-31 high:4@32-47 scale:16@48-55"),
    _row(
        "IQ2_XXS",
        16,
        256,
        66,
        "d:16@0-1 index:8@2-5+10-13+18-21+26-29+34-37+42-45+50-53+58-61 "
        "sign:8@6-9+14-17+22-25+30-33+38-41+46-49+54-57+62-65",
    ),
    _row("IQ2_XS", 17, 256, 74, "d:16@0-1 index:8@2-64/2 sign:8@3-65/2 scale:4@66-73"),
    _row("IQ2_S", 22, 256, 82, "d:16@0-1 index:8@2-33 sign:8@34-65 high:2@66-73 scale:4@74-81"),
    _row("IQ3_XXS", 18, 256, 98, "d:16@0-1 index:8@2-65 sign:8@66-97"),
    _row("IQ3_S", 21, 256, 110, "d:16@0-1 index:8@2-65 high:1@66-73 sign:8@74-105 scale:4@106-109"),
    _row("IQ4_NL", 20, 32, 18, "d:16@0-1 q:4@2-17"),
    _row("IQ4_XS", 23, 256, 136, "d:16@0-1 high:2@2-3 scale:4@4-7 q:4@8-135"),
    _row("Q4_0_4_4", 31, 32, 18),
    _row("Q4_0_4_8", 32, 32, 18),
    _row("Q4_0_8_8", 33, 32, 18),
    _row("TQ1_0", 34, 256, 54, "q:8@0-47 high:8@48-51 d:16@52-53"),
    _row("TQ2_0", 35, 256, 66, "q:2@0-63 d:16@64-65"),
    _row("MXFP4", 39, 32, 17, "scale:8@0 q:4@1-16"),
    _row("NVFP4", 40, 64, 36, "scale:8@0-3 q:4@4-35"),
)
