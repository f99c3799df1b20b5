"""The suite every pipeline passes with every dtype: exact round trips, and every damage noticed."""

import json
import math
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from tests.support.reference_run import one_in
from unweight_codecs.errors import FormatError, IntegrityError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels.operands import SAMPLING_STRIDE, Bytes
from unweight_codecs.payload import head as payload_head
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_from_dict, pipeline_of
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_codec import decode_tensor, encode_tensor
from unweight_codecs.tensor_spec import BLOCK_DTYPES, DTYPES, DType, TensorSpec

Encode = Callable[[Pipeline, TensorSpec, Bytes], bytes]
Decode = Callable[[Pipeline, TensorSpec, bytes], bytes]


def small_chunks(name: str, grid: HistogramGrid, classes: int = 1) -> Pipeline:
    stages = (
        ExponentWindow(),
        grid,
        ScaleClasses(classes=classes),
        BitExact(),
        Pack(chunk_log2=12),
    )
    return pipeline_of(name, stages)


PIPELINES = PRESETS | {
    pipeline.name: pipeline
    for pipeline in (
        small_chunks("m0", HistogramGrid(mantissa_bits=0, tables=1)),
        small_chunks("m1", HistogramGrid(mantissa_bits=1, tables=2)),
        small_chunks("m2", HistogramGrid(mantissa_bits=2)),
        small_chunks("m3", HistogramGrid(mantissa_bits=3, tables=64)),
        small_chunks("contexts", HistogramGrid(mantissa_bits=1), classes=8),
        pipeline_of(
            "fixed window",
            (ExponentWindow(base=5), HistogramGrid(), ScaleClasses(), BitExact(), Pack()),
        ),
    )
}
EDGE_COUNTS = (1, 3, 127, 128, 129, 4097, 6143, 6144, 12_289)

ALL_DTYPES: dict[str, DType] = DTYPES | BLOCK_DTYPES
# Mantissa bits and classes of weights mean nothing to blocks; chunks and tables do: 8, 1 and 64.
BLOCK_PIPELINES = {name: PIPELINES[name] for name in ("default", "m0", "m3")}

pipelines = pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES.keys())
dtypes = pytest.mark.parametrize("dtype", ALL_DTYPES)
NAMES_AND_DTYPES = [
    (name, dtype)
    for chosen, every in ((PIPELINES, DTYPES), (BLOCK_PIPELINES, BLOCK_DTYPES))
    for name in chosen
    for dtype in every
]


def nbytes(dtype: str, count: int) -> int:
    """Return the bytes of ``count`` elements, rounded up to whole bytes or blocks."""
    if dtype in BLOCK_DTYPES:
        return -(-count // BLOCK_DTYPES[dtype].block_elements) * BLOCK_DTYPES[dtype].block_bytes
    return -(-count * DTYPES[dtype].bits // 8)


def spec_of(dtype: str, data: Bytes, columns: int = 1) -> TensorSpec:
    """Return the spec of as many elements as ``data`` holds, in rows where that fits."""
    if dtype in BLOCK_DTYPES:
        blocks = data.size // BLOCK_DTYPES[dtype].block_bytes
        return TensorSpec("t", dtype, (blocks, BLOCK_DTYPES[dtype].block_elements))
    elements = data.size * 8 // DTYPES[dtype].bits
    shape = (elements // columns, columns) if elements % columns == 0 else (elements,)
    return TensorSpec("t", dtype, shape)


def whole_elements(dtype: str, data: Bytes) -> Bytes:
    """Cut ``data`` to whole elements, blocks and bytes."""
    step = ALL_DTYPES[dtype].block_bytes or math.lcm(8, DTYPES[dtype].bits) // 8
    return data[: data.size // step * step]


def all_patterns(dtype: str) -> Bytes:
    """Every element of a small type; for larger ones every high half over random low bits.

    Blocks get every pair of bytes at every place of their fields.
    """
    if dtype in BLOCK_DTYPES:
        return np.arange(1 << 16, dtype="<u2").view(np.uint8)
    bits = DTYPES[dtype].bits
    if bits <= 8:
        return np.arange(256, dtype=np.uint8).repeat(3)
    if bits == 16:
        return np.arange(1 << 16, dtype="<u2").view(np.uint8)
    high = np.arange(1 << 16, dtype="<u8") << np.uint64(bits - 16)
    low = np.random.default_rng(bits).integers(0, 1 << 62, 1 << 16, np.uint64)
    low &= np.uint64((1 << (bits - 16)) - 1)
    words: Bytes = (high | low).astype(f"<u{bits // 8}").view(np.uint8)
    return words


def gaussian(dtype: str, count: int) -> Bytes:
    """Return rows of 64 weights with scales of their own, as a trained tensor has them."""
    rng = np.random.default_rng(count)
    scales = np.exp2(rng.normal(-5, 2, -(-count // 64))).repeat(64)[:count]
    values = rng.normal(0, 1, count) * scales
    if dtype in ("F64", "F32", "F16"):
        return values.astype(f"<f{DTYPES[dtype].bits // 8}").view(np.uint8)
    if dtype == "C64":
        return (values + 1j * values[::-1]).astype("<c8").view(np.uint8)
    if dtype == "BF16":
        return np.ascontiguousarray(values.astype("<f4").view("<u2")[1::2]).view(np.uint8)
    # No NumPy type, or blocks: weights quantised to signed bytes look much the same.
    quantised = np.clip(values * 400, -128, 127).astype(np.int8)
    return np.resize(quantised.view(np.uint8), nbytes(dtype, count))


def unlike_its_samples(dtype: str) -> Bytes:
    """Words that a survey leaves out, 4096 in a row, hold what those it counts do not.

    Of blocks it counts every fourth.
    """
    if dtype in BLOCK_DTYPES:
        blocks = np.zeros((400, BLOCK_DTYPES[dtype].block_bytes), np.uint8)
        blocks[1::SAMPLING_STRIDE] = np.random.default_rng(4).integers(
            0, 256, blocks[1::SAMPLING_STRIDE].shape, np.uint8
        )
        return blocks.reshape(-1)
    count = 1 << 16 if DTYPES[dtype].exponent_bits else 1 << 13  # only floats are sampled
    data = gaussian(dtype, count).copy()
    size = max(1, DTYPES[dtype].bits // 8 // DTYPES[dtype].components)
    left_out = np.arange(data.size) // size // 4096 % 2 == 1
    data[left_out] = np.random.default_rng(3).integers(0, 256, int(left_out.sum()), np.uint8)
    return data


CONTENTS: dict[str, Callable[[str], Bytes]] = {
    "all patterns": all_patterns,
    "gaussian": lambda dtype: gaussian(dtype, 96 * 64),
    "unlike its samples": unlike_its_samples,
    "zeros": lambda dtype: np.zeros(nbytes(dtype, 9000), np.uint8),
    "constant": lambda dtype: np.resize(np.arange(1, 9, dtype=np.uint8), nbytes(dtype, 9000)),
    "two values": lambda dtype: np.where(
        np.arange(nbytes(dtype, 9000)) // 8 % 3 == 0, 0x3C, 0xBD
    ).astype(np.uint8),
    "random bytes": lambda dtype: np.random.default_rng(1).integers(
        0, 256, nbytes(dtype, 5000), np.uint8
    ),
    "small integers": lambda dtype: (
        np.random.default_rng(2).integers(-3, 4, nbytes(dtype, 5000) // 8, np.int64).view(np.uint8)
    ),
    "repeated text": lambda dtype: np.resize(
        np.frombuffer(b"the same words again and again. ", np.uint8), nbytes(dtype, 9000)
    ),
}

FLOAT_SPECIALS = {
    "F32": (0x7F800000, 0xFF800000, 0x7FC00001, 0xFFA5A5A5, 0x80000000, 0, 1, 0x807FFFFF),
    "F64": (
        0x7FF0000000000000,
        0xFFF0000000000000,
        0x7FF8000000000001,
        0xFFF5A5A5A5A5A5A5,
        0x8000000000000000,
        0,
        1,
        0x800FFFFFFFFFFFFF,
    ),
}


@pytest.mark.parametrize(
    ("pipeline", "dtype", "content"),
    [
        # The NumPy reference, which is slow, has one content of each pair, the next has the next.
        pytest.param(
            PIPELINES[name],
            dtype,
            content,
            id=f"{content}-{name}-{dtype}",
            marks=one_in(len(CONTENTS), row + column),
        )
        for row, content in enumerate(CONTENTS)
        for column, (name, dtype) in enumerate(NAMES_AND_DTYPES)
    ],
)
def test_round_trip(
    encode_payload: Encode, decode_payload: Decode, pipeline: Pipeline, dtype: str, content: str
) -> None:
    data = whole_elements(dtype, CONTENTS[content](dtype))
    spec = spec_of(dtype, data, columns=64)
    assert decode_payload(pipeline, spec, encode_payload(pipeline, spec, data)) == data.tobytes()


@pytest.mark.parametrize(
    ("pipeline", "dtype"),
    [
        pytest.param(PIPELINES[name], dtype, id=f"{name}-{dtype}", marks=one_in(4, number))
        for number, (name, dtype) in enumerate(NAMES_AND_DTYPES)
    ],
)
def test_lengths_at_the_edges_of_groups_and_chunks(
    encode_payload: Encode, decode_payload: Decode, pipeline: Pipeline, dtype: str
) -> None:
    block = ALL_DTYPES[dtype].block_elements
    for count in EDGE_COUNTS if block == 1 else (block * few for few in EDGE_COUNTS[:5]):
        data = whole_elements(dtype, gaussian(dtype, count))
        if not data.size:
            continue
        spec = spec_of(dtype, data)
        coded = encode_payload(pipeline, spec, data)
        assert decode_payload(pipeline, spec, coded) == data.tobytes(), count


@pipelines
@pytest.mark.parametrize("dtype", FLOAT_SPECIALS)
def test_infinities_nan_payloads_negative_zero_and_subnormals(
    encode_payload: Encode, decode_payload: Decode, pipeline: Pipeline, dtype: str
) -> None:
    weights = gaussian(dtype, 4096)
    words = weights.view(f"<u{DTYPES[dtype].bits // 8}").copy()
    specials = np.array(FLOAT_SPECIALS[dtype], words.dtype)
    words[:: 4096 // 64] = np.resize(specials, 64)
    spec = TensorSpec("t", dtype, (64, 64))
    coded = encode_payload(pipeline, spec, words.view(np.uint8))
    assert decode_payload(pipeline, spec, coded) == words.tobytes()


@pytest.mark.parametrize("name", sorted(PIPELINES.keys() - {"fixed window"}))
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_weights_shrink_and_come_back(name: str, dtype: str) -> None:
    pipeline = PIPELINES[name]
    data = gaussian(dtype, 64 * 256)
    coded = encode_tensor(pipeline, TensorSpec("t", dtype, (256, 64)), data)
    assert coded is not None
    assert coded.size < data.size
    assert b"".join(part.tobytes() for part in decode_tensor(pipeline, coded)) == data.tobytes()


@dtypes
def test_random_bytes_are_left_alone(dtype: str) -> None:
    data = np.random.default_rng(0).integers(0, 256, nbytes(dtype, 4096), np.uint8)
    assert encode_tensor(PRESETS["default"], spec_of(dtype, data), data) is None


@pytest.mark.parametrize("dtype", ["BF16", "F32", "I64"])
def test_raw_chunks_grow_by_no_more_than_head_and_padding(
    encode_payload: Encode, dtype: str
) -> None:
    data = np.random.default_rng(0).integers(0, 256, nbytes(dtype, 4096), np.uint8)
    coded = encode_payload(PRESETS["default"], spec_of(dtype, data), data)
    assert len(coded) < data.size + 1200


@pipelines
def test_json_round_trip(pipeline: Pipeline) -> None:
    again = pipeline_from_dict(json.loads(json.dumps(pipeline.to_dict())))
    assert again == pipeline
    assert again.to_dict() == pipeline.to_dict()


@pipelines
def test_a_decoder_built_from_json_decodes(
    encode_payload: Encode, decode_payload: Decode, pipeline: Pipeline
) -> None:
    data = gaussian("BF16", 4096)
    spec = TensorSpec("t", "BF16", (64, 64))
    coded = encode_payload(pipeline, spec, data)
    decoder = pipeline_from_dict(json.loads(json.dumps(pipeline.to_dict())))
    assert decode_payload(decoder, spec, coded) == data.tobytes()


DAMAGE_CASES = pytest.mark.parametrize(
    ("pipeline", "dtype"),
    [
        (PIPELINES[name], dtype)
        for name in ("default", "contexts", "m3")
        for dtype in ("BF16", "F64", "F8_E4M3", "I32", "Q4_1", "Q5_1", "Q3_K")
    ],
    ids=lambda value: value.name if isinstance(value, Pipeline) else value,
)


def small_payload(encode: Encode, pipeline: Pipeline, dtype: str) -> tuple[TensorSpec, bytes]:
    data = gaussian(dtype, 64 * 70)
    spec = spec_of(dtype, data, columns=64)
    return spec, encode(pipeline, spec, data)


@DAMAGE_CASES
def test_truncation_at_every_byte_of_the_head(
    encode_payload: Encode, decode_payload: Decode, pipeline: Pipeline, dtype: str
) -> None:
    spec, coded = small_payload(encode_payload, pipeline, dtype)
    for length in range(payload_head.peek_length(coded[:64], len(coded)) + 1):
        with pytest.raises((IntegrityError, FormatError)):
            decode_payload(pipeline, spec, coded[:length])


@DAMAGE_CASES
def test_truncation_and_surplus_of_the_chunks(
    encode_payload: Encode, decode_payload: Decode, pipeline: Pipeline, dtype: str
) -> None:
    spec, coded = small_payload(encode_payload, pipeline, dtype)
    for length in {len(coded) - 1, len(coded) - 8, len(coded) // 2}:
        with pytest.raises(IntegrityError):
            decode_payload(pipeline, spec, coded[:length])
    for surplus in (1, 8, 16):
        with pytest.raises(IntegrityError):
            decode_payload(pipeline, spec, coded + bytes(surplus))


@DAMAGE_CASES
def test_a_bit_flip_in_every_byte_of_the_head(
    encode_payload: Encode, decode_payload: Decode, pipeline: Pipeline, dtype: str
) -> None:
    """Each time in another bit, and in others for every pipeline and dtype."""
    spec, coded = small_payload(encode_payload, pipeline, dtype)
    first = zlib.crc32(f"{pipeline.name}{dtype}".encode()) % 7
    for bit in range(first, 8 * payload_head.peek_length(coded[:64], len(coded)), 7):
        with pytest.raises((IntegrityError, FormatError)):
            decode_payload(pipeline, spec, flipped(coded, bit))


@DAMAGE_CASES
def test_random_bit_flips_of_the_chunks(
    encode_payload: Encode, decode_payload: Decode, pipeline: Pipeline, dtype: str
) -> None:
    spec, coded = small_payload(encode_payload, pipeline, dtype)
    head = payload_head.peek_length(coded[:64], len(coded))
    seed = zlib.crc32(f"{pipeline.name}{dtype}".encode())
    for bit in np.random.default_rng(seed).integers(8 * head, 8 * len(coded), 200).tolist():
        with pytest.raises(IntegrityError):
            decode_payload(pipeline, spec, flipped(coded, bit))


def flipped(data: bytes, bit: int) -> bytes:
    """Return ``data`` with one bit changed."""
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
