"""Takes quantised blocks apart into the streams of their fields, and puts them together again.

A block is a word; which bits of it are which field is data, in ``block_types.py``.
"""

import functools
from collections.abc import Iterable

import numpy as np

from unweight_codecs.block_types import BYTE, Field
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import Bytes


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
