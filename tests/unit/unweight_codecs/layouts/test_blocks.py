"""The fields of quantised blocks: every bit has one place, and taking apart loses nothing."""

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from gguf.quants import Q4_K
from numpy.typing import NDArray

from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.layouts import layout_of, streams_of
from unweight_codecs.layouts.blocks import (
    BLOCKS,
    BitRange,
    Field,
    fields_of,
    put_together,
    take_apart,
)
from unweight_codecs.tensor_spec import BLOCK_DTYPES, TensorSpec

every_type = pytest.mark.parametrize("name", BLOCK_DTYPES)
COUNTS = (1, 3, 131)  # of blocks


def blocks_of(name: str, count: int, fill: int | None = None) -> Bytes:
    """Return ``count`` blocks of random bytes, or of one byte."""
    size = BLOCK_DTYPES[name].block_bytes
    if fill is not None:
        return np.full((count, size), fill, np.uint8)
    return np.random.default_rng(count).integers(0, 256, (count, size), np.uint8)


def fields_named(name: str) -> tuple[Field, ...]:
    return fields_of(name, BLOCK_DTYPES[name].block_bytes)


def ranges_of(field: Field) -> list[tuple[BitRange, ...]]:
    """Return the bit ranges of every value of a field, those of dense ones bit by bit."""
    if field.bit_ranges:
        return list(field.bit_ranges)
    bits = [BitRange(byte, shift, 1) for byte in field.bytes for shift in range(8)]
    return [
        tuple(
            BitRange(bit.byte, bit.shift, 1, at) for at, bit in enumerate(bits[k : k + field.bits])
        )
        for k in range(0, len(bits), field.bits)
    ]


def values_of(blocks: Bytes, field: Field) -> NDArray[np.int64]:
    """Return the values of a field bit by bit, shape (blocks, values)."""
    bits = np.unpackbits(blocks, axis=1, bitorder="little").astype(np.int64)
    values = np.zeros((len(blocks), field.count), np.int64)
    for k, ranges in enumerate(ranges_of(field)):
        for part in ranges:
            for bit in range(part.width):
                values[:, k] |= bits[:, 8 * part.byte + part.shift + bit] << part.at + bit
    return values


@every_type
def test_every_bit_of_a_block_belongs_to_one_field(name: str) -> None:
    bits = [
        8 * part.byte + part.shift + bit
        for field in fields_named(name)
        for ranges in ranges_of(field)
        for part in ranges
        for bit in range(part.width)
    ]
    assert sorted(bits) == list(range(8 * BLOCK_DTYPES[name].block_bytes))


@every_type
def test_bit_ranges_fill_a_value(name: str) -> None:
    for field in fields_named(name):
        for ranges in ranges_of(field):
            filled = [part.at + bit for part in ranges for bit in range(part.width)]
            assert sorted(filled) == list(range(field.bits)), field.name


@every_type
def test_streams_have_names_of_their_own(name: str) -> None:
    streams = [stream for field in fields_named(name) for stream in field.streams()]
    assert len(set(streams)) == len(streams)


@pytest.mark.parametrize("peer", GGMLQuantizationType, ids=lambda peer: peer.name)
def test_sizes_are_those_of_the_gguf_package(peer: GGMLQuantizationType) -> None:
    elements, size = GGML_QUANT_SIZES[peer]
    spec = TensorSpec("t", peer.name, (3, elements))
    assert spec.nbytes == 3 * size
    layout = layout_of(spec)
    assert layout.words * layout.word_bytes == 3 * size
    if peer.name in BLOCK_DTYPES:
        assert (layout.words, layout.word_bytes) == (3, size)


def test_every_type_that_ggml_has_today_is_taken_apart() -> None:
    repacked = {"Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8"}  # dropped from GGML: kept as bytes
    assert BLOCKS.keys() == BLOCK_DTYPES.keys() - repacked
    for name in repacked:
        assert [(each.bits, each.count) for each in fields_named(name)] == [(8, 18)]


@every_type
def test_streams_hold_the_bits_that_the_table_says(each_kernel: str, name: str) -> None:
    blocks = blocks_of(name, 131)
    streams = take_apart(blocks, fields_named(name))
    for field in fields_named(name):
        values = values_of(blocks, field)
        for k, (stream, bits) in enumerate(field.streams().items()):
            expected = (values >> 8 * k) & ((1 << bits) - 1)
            np.testing.assert_array_equal(streams[stream], expected.reshape(-1), stream)


@every_type
@pytest.mark.parametrize("fill", [None, 0, 0x55, 0xAA, 0xFF])
def test_round_trip(each_kernel: str, name: str, fill: int | None) -> None:
    for count in COUNTS:
        blocks = blocks_of(name, count, fill)
        streams = take_apart(blocks, fields_named(name))
        # What the memory held before must not show.
        restored = np.full_like(blocks, 0xC3)
        put_together(streams, fields_named(name), restored)
        assert restored.tobytes() == blocks.tobytes(), count


@every_type
def test_a_layout_knows_how_many_values_a_stream_has(name: str) -> None:
    blocks = blocks_of(name, 5)
    layout = layout_of(TensorSpec("t", name, (5, BLOCK_DTYPES[name].block_elements)))
    streams = streams_of(blocks.reshape(-1), layout)
    assert list(streams) == list(layout.plain_streams())
    assert {name: values.size for name, values in streams.items()} == {
        name: 5 * layout.per_word(name) for name in streams
    }


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K"])
def test_scales_and_mins_of_k_quants(name: str) -> None:
    blocks = blocks_of(name, 50)
    streams = take_apart(blocks, fields_named(name))
    scales, mins = Q4_K.get_scale_min(blocks[:, 4:16])
    np.testing.assert_array_equal(streams["scale"], scales.reshape(-1))
    np.testing.assert_array_equal(streams["min"], mins.reshape(-1))


def test_scales_of_q3_k() -> None:
    """With quants and high bits of zero, every weight is -4 times scale - 32."""
    blocks = np.zeros((50, 110), np.uint8)
    blocks[:, 96:108] = blocks_of("Q3_K", 50)[:, 96:108]
    blocks[:, 108:] = np.frombuffer(np.array([1], "<f2").tobytes(), np.uint8)
    weights = dequantize(blocks, GGMLQuantizationType.Q3_K)
    scales = 32 - weights.reshape(50, 16, 16)[:, :, 0] / 4
    np.testing.assert_array_equal(
        take_apart(blocks, fields_named("Q3_K"))["scale"], scales.reshape(-1)
    )
