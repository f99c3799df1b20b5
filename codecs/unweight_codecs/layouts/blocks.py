"""Quantised blocks as data: which bits of a GGML block hold which field.

A block is a word whose fields become streams of their own: scales, mins, quants, high bits, signs,
codebook indexes. Where GGML packs a value into several places, the bit ranges are listed and the
value is put together. A type that is not listed is one stream of bytes.

Source of the layouts: the block structures of ggml (ggml-common.h), as the ``gguf`` package
reads them.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import Bytes

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


def _dense(name: str, bits: int, first: int, size: int, step: int = 1) -> Field:
    """Return a field in ``size`` bytes from byte ``first``, every ``step``-th one."""
    return Field(name, bits, tuple(range(first, first + size * step, step)))


def _runs(name: str, bits: int, first: int, run: int, stride: int, number: int) -> Field:
    """Return a field in ``number`` runs of ``run`` bytes that start ``stride`` bytes apart."""
    starts = range(first, first + number * stride, stride)
    return Field(name, bits, tuple(start + k for start in starts for k in range(run)))


def _half(name: str, first: int) -> Field:
    return _dense(name, 16, first, 2)


def _scales_and_mins(first: int) -> tuple[Field, Field]:
    """Return the eight 6-bit scales and mins that Q4_K and Q5_K pack into twelve bytes."""
    low, mid, high = (range(first + 4 * k, first + 4 * k + 4) for k in range(3))
    scales: list[tuple[BitRange, ...]] = [(BitRange(b, 0, 6),) for b in low]
    scales += [(BitRange(h, 0, 4), BitRange(b, 6, 2, 4)) for b, h in zip(low, high, strict=True)]
    mins: list[tuple[BitRange, ...]] = [(BitRange(b, 0, 6),) for b in mid]
    mins += [(BitRange(h, 4, 4), BitRange(b, 6, 2, 4)) for b, h in zip(mid, high, strict=True)]
    return Field("scale", 6, (), tuple(scales)), Field("min", 6, (), tuple(mins))


def _sixteen_scales(first: int) -> Field:
    """Return the sixteen 6-bit scales that Q3_K packs into twelve bytes."""
    return Field(
        "scale",
        6,
        (),
        tuple(
            (
                BitRange(first + k % 8, 4 * (k // 8), 4),
                BitRange(first + 8 + k % 4, 2 * (k // 4), 2, 4),
            )
            for k in range(16)
        ),
    )


BLOCKS: dict[str, tuple[Field, ...]] = {
    "Q1_0": (_half("d", 0), _dense("q", 1, 2, 16)),
    "Q2_0": (_half("d", 0), _dense("q", 2, 2, 16)),
    "Q4_0": (_half("d", 0), _dense("q", 4, 2, 16)),
    "Q4_1": (_half("d", 0), _half("m", 2), _dense("q", 4, 4, 16)),
    "Q5_0": (_half("d", 0), _dense("high", 1, 2, 4), _dense("q", 4, 6, 16)),
    "Q5_1": (_half("d", 0), _half("m", 2), _dense("high", 1, 4, 4), _dense("q", 4, 8, 16)),
    "Q8_0": (_half("d", 0), _dense("q", 8, 2, 32)),
    "Q8_1": (_dense("d", 32, 0, 4), _dense("sum", 32, 4, 4), _dense("q", 8, 8, 32)),
    "Q2_K": (
        _dense("scale", 4, 0, 16),
        _dense("q", 2, 16, 64),
        _half("d", 80),
        _half("dmin", 82),
    ),
    "Q3_K": (
        _dense("high", 1, 0, 32),
        _dense("q", 2, 32, 64),
        _sixteen_scales(96),
        _half("d", 108),
    ),
    "Q4_K": (_half("d", 0), _half("dmin", 2), *_scales_and_mins(4), _dense("q", 4, 16, 128)),
    "Q5_K": (
        _half("d", 0),
        _half("dmin", 2),
        *_scales_and_mins(4),
        _dense("high", 1, 16, 32),
        _dense("q", 4, 48, 128),
    ),
    "Q6_K": (
        _dense("q", 4, 0, 128),
        _dense("high", 2, 128, 64),
        _dense("scale", 8, 192, 16),
        _half("d", 208),
    ),
    "Q8_K": (_dense("d", 32, 0, 4), _dense("q", 8, 4, 256), _dense("sum", 16, 260, 32)),
    "IQ1_S": (_half("d", 0), _dense("index", 8, 2, 32), _dense("high", 16, 34, 16)),
    "IQ1_M": (_dense("index", 8, 0, 32), _dense("high", 4, 32, 16), _dense("scale", 16, 48, 8)),
    "IQ2_XXS": (
        _half("d", 0),
        _runs("index", 8, 2, 4, 8, 8),
        _runs("sign", 8, 6, 4, 8, 8),
    ),
    "IQ2_XS": (
        _half("d", 0),
        _dense("index", 8, 2, 32, 2),
        _dense("sign", 8, 3, 32, 2),
        _dense("scale", 4, 66, 8),
    ),
    "IQ2_S": (
        _half("d", 0),
        _dense("index", 8, 2, 32),
        _dense("sign", 8, 34, 32),
        _dense("high", 2, 66, 8),
        _dense("scale", 4, 74, 8),
    ),
    "IQ3_XXS": (_half("d", 0), _dense("index", 8, 2, 64), _dense("sign", 8, 66, 32)),
    "IQ3_S": (
        _half("d", 0),
        _dense("index", 8, 2, 64),
        _dense("high", 1, 66, 8),
        _dense("sign", 8, 74, 32),
        _dense("scale", 4, 106, 4),
    ),
    "IQ4_NL": (_half("d", 0), _dense("q", 4, 2, 16)),
    "IQ4_XS": (
        _half("d", 0),
        _dense("high", 2, 2, 2),
        _dense("scale", 4, 4, 4),
        _dense("q", 4, 8, 128),
    ),
    "TQ1_0": (_dense("q", 8, 0, 48), _dense("high", 8, 48, 4), _half("d", 52)),
    "TQ2_0": (_dense("q", 2, 0, 64), _half("d", 64)),
    "MXFP4": (_dense("scale", 8, 0, 1), _dense("q", 4, 1, 16)),
    "NVFP4": (_dense("scale", 8, 0, 4), _dense("q", 4, 4, 32)),
}


@functools.cache
def fields_of(name: str, block_bytes: int) -> tuple[Field, ...]:
    """Return the fields of a block type; one field of bytes for a type that is not listed."""
    return BLOCKS.get(name) or (_dense("byte", BYTE, 0, block_bytes),)


def take_apart(blocks: Bytes, fields: Iterable[Field]) -> dict[str, Bytes]:
    """Turn blocks of shape (blocks, bytes), each row dense, into the streams of fields."""
    return {
        name: _gather(blocks, part) if part.bit_ranges else _unpacked(blocks, part)
        for each in fields
        for name, part in _parts(each).items()
    }


def put_together(streams: dict[str, Bytes], fields: Iterable[Field], blocks: Bytes) -> None:
    """Undo ``take_apart`` into ``blocks`` of shape (blocks, bytes)."""
    fields = tuple(fields)
    # Bit ranges are joined by OR, and fields share bytes: these start from zero, once for all.
    for byte in {p.byte for each in fields for ranges in each.bit_ranges for p in ranges}:
        blocks[:, byte] = 0
    for each in fields:
        for name, part in _parts(each).items():
            (_scatter if part.bit_ranges else _pack)(streams[name], part, blocks)


@functools.cache
def _parts(each: Field) -> dict[str, Field]:
    """Return the field of each stream: those of values of several bytes have one byte each."""
    if each.bits <= BYTE:
        return {each.name: each}
    step = each.bits // BYTE
    return {name: Field(name, BYTE, each.bytes[k::step]) for k, name in enumerate(each.streams())}


def _unpacked(blocks: Bytes, each: Field) -> Bytes:
    """Return the values of a dense field."""
    active, columns = kernels(), _columns(each)
    if isinstance(columns, slice) and columns.step == 1:
        return active.take_field(blocks, each.bytes[0], len(each.bytes), each.bits)
    dense = np.ascontiguousarray(blocks[:, columns]).reshape(-1)
    if each.bits == BYTE:
        return dense
    return active.unpack_bits(dense, len(blocks) * each.count, each.bits)


def _pack(values: Bytes, each: Field, blocks: Bytes) -> None:
    """Undo ``_unpacked`` into ``blocks``."""
    active, columns = kernels(), _columns(each)
    if isinstance(columns, slice) and columns.step == 1:
        active.put_field(values, each.bytes[0], len(each.bytes), each.bits, blocks)
        return
    dense = values if each.bits == BYTE else active.pack_bits(values, each.bits)
    blocks[:, columns] = dense.reshape(len(blocks), -1)


@functools.cache
def _columns(each: Field) -> slice | list[int]:
    """Return the bytes of a dense field as a slice where they are regular: those copy faster."""
    columns = each.bytes
    step = columns[1] - columns[0] if len(columns) > 1 else 1
    regular = slice(columns[0], columns[-1] + 1, step)
    return regular if columns == tuple(range(*regular.indices(1 << 16))) else list(columns)


def _gather(blocks: Bytes, each: Field) -> Bytes:
    values = np.zeros((len(blocks), each.count), np.uint8)
    for k, ranges in enumerate(each.bit_ranges):
        for bits in ranges:
            part = blocks[:, bits.byte] >> bits.shift & ((1 << bits.width) - 1)
            values[:, k] |= part << bits.at
    return values.reshape(-1)


def _scatter(values: Bytes, each: Field, blocks: Bytes) -> None:
    rows = values.reshape(len(blocks), -1)
    for k, ranges in enumerate(each.bit_ranges):
        for bits in ranges:
            part = rows[:, k] >> bits.at & ((1 << bits.width) - 1)
            blocks[:, bits.byte] |= part << bits.shift
