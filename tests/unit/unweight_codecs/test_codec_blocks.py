"""What is special about coding quantised blocks: contexts, long chunks, many values per word."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quantize

from tests.support.payloads import Parts
from unweight_codecs.entropy import frequencies
from unweight_codecs.errors import IntegrityError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.kernels.reference import ReferenceKernels
from unweight_codecs.layouts.contexts import CONTEXTS, PREDICTED
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.head import parse_head, peek_length
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_codec import encode_tensor
from unweight_codecs.tensor_spec import BLOCK_DTYPES, TensorSpec

Encode = Callable[[Pipeline, TensorSpec, Bytes], bytes]
Decode = Callable[[Pipeline, TensorSpec, bytes], bytes]
UseKernel = Callable[[str], None]

GRID, PACK = 1, 4
DEFAULT = PRESETS["default"]
ONE_TABLE = pipeline_of(
    "one table", (ExponentWindow(), HistogramGrid(tables=1), ScaleClasses(), BitExact(), Pack())
)
SMALL = pipeline_of(
    "small", (ExponentWindow(), HistogramGrid(), ScaleClasses(), BitExact(), Pack(chunk_log2=12))
)
BLOCKS, MANY = 700, 6000  # contexts pay for their tables only where there are many blocks
SPECIALS = (0.0, -0.0, 6e-8, -1.0, 65504.0, np.inf, -np.inf, np.nan)


def weights(rows: int, columns: int = 256) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """Return weights with outliers, so that blocks have a zero point far from their middle."""
    rng = np.random.default_rng(rows)
    values = rng.standard_t(3, (rows, columns)) * np.exp2(rng.normal(-5, 1, (rows, 1)))
    return values.astype("<f4")


def quantised(name: str, blocks: int = BLOCKS) -> Bytes:
    """Return blocks of weights, by the gguf package where it can; others have skewed bytes."""
    dtype = BLOCK_DTYPES[name]
    try:
        data = quantize(weights(blocks, dtype.block_elements), GGMLQuantizationType[name])
    except (KeyError, NotImplementedError):
        rng = np.random.default_rng(blocks)
        places = 128 + 60 * np.sin(np.arange(dtype.block_bytes))
        data = rng.normal(places, 9, (blocks, dtype.block_bytes)).astype(np.uint8)
    return np.ascontiguousarray(data).reshape(-1)


def spec_of(name: str, data: Bytes) -> TensorSpec:
    dtype = BLOCK_DTYPES[name]
    return TensorSpec("t", name, (data.size // dtype.block_bytes, dtype.block_elements))


def with_special_scales(name: str) -> Bytes:
    """Return blocks in which every pair of special d and m occurs."""
    data = quantised(name, MANY).copy().reshape(MANY, -1)
    pairs = np.array([(d, m) for d in SPECIALS for m in SPECIALS], "<f2")
    data[:: MANY // len(pairs)][: len(pairs), :4] = pairs.view(np.uint8)
    return data.reshape(-1)


def model_of(coded: bytes, pipeline: Pipeline, spec: TensorSpec) -> TensorModel:
    length = peek_length(coded[:64], len(coded))
    return pipeline.read_head(coded[:length], spec, len(coded))[0]


@pytest.mark.parametrize("name", BLOCK_DTYPES)
@pytest.mark.parametrize("pipeline", [DEFAULT, SMALL], ids=lambda pipeline: pipeline.name)
def test_every_kernel_writes_the_same_bytes_and_reads_them(
    name: str,
    pipeline: Pipeline,
    kernels: Sequence[str],
    use_kernel: UseKernel,
    encode_payload: Encode,
    decode_payload: Decode,
) -> None:
    data = quantised(name)
    spec = spec_of(name, data)
    written = {}
    # The reference takes most of the time, and small chunks have more for it to do: full ones and
    # cut ones, and tables of their own.
    native = [kernel for kernel in kernels if kernel != ReferenceKernels.name]
    for kernel in kernels if pipeline is SMALL else native or kernels:
        use_kernel(kernel)
        written[kernel] = encode_payload(pipeline, spec, data)
        assert decode_payload(pipeline, spec, written[kernel]) == data.tobytes(), kernel
    assert len(set(written.values())) == 1


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ2_0", "MXFP4"])
def test_quantised_weights_shrink(name: str) -> None:
    data = quantised(name, MANY)
    coded = encode_tensor(DEFAULT, spec_of(name, data), data)
    assert coded is not None
    assert coded.size < 0.98 * data.size


@pytest.mark.parametrize("name", PREDICTED)
def test_zero_points_are_contexts_where_they_pay(
    name: str, encode_payload: Encode, decode_payload: Decode
) -> None:
    data = quantised(name, MANY)
    spec = spec_of(name, data)
    coded = encode_payload(DEFAULT, spec, data)
    model = model_of(coded, DEFAULT, spec)
    assert model.contextual == set(PREDICTED[name])
    assert all(len(model.tables[stream]) == CONTEXTS for stream in model.contextual)
    assert decode_payload(DEFAULT, spec, coded) == data.tobytes()


@pytest.mark.parametrize("name", PREDICTED)
def test_quants_that_the_zero_point_does_not_predict_have_no_contexts(
    name: str, encode_payload: Encode, decode_payload: Decode
) -> None:
    rng = np.random.default_rng(1)
    data = rng.integers(0, 256, (BLOCKS, BLOCK_DTYPES[name].block_bytes), np.uint8).reshape(-1)
    spec = spec_of(name, data)
    coded = encode_payload(DEFAULT, spec, data)
    assert not model_of(coded, DEFAULT, spec).contextual
    assert decode_payload(DEFAULT, spec, coded) == data.tobytes()


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize("pipeline", [*PRESETS.values(), SMALL], ids=lambda found: found.name)
def test_scales_that_are_zero_negative_or_not_finite(
    name: str, pipeline: Pipeline, encode_payload: Encode, decode_payload: Decode
) -> None:
    check_special_scales(name, pipeline, encode_payload, decode_payload)


@pytest.mark.parametrize("name", PREDICTED)
def test_such_scales_on_every_kernel(
    each_kernel: str, name: str, encode_payload: Encode, decode_payload: Decode
) -> None:
    check_special_scales(name, SMALL, encode_payload, decode_payload)


def check_special_scales(name: str, pipeline: Pipeline, encode: Encode, decode: Decode) -> None:
    data = with_special_scales(name)
    spec = spec_of(name, data)
    coded = encode(pipeline, spec, data)
    assert model_of(coded, pipeline, spec).contextual
    assert decode(pipeline, spec, coded) == data.tobytes()


def test_a_chunk_that_its_table_makes_longer_than_a_directory_entry_can_say() -> None:
    """One chunk of noise among many of zeros: coded with their table it would take megabytes."""
    rng = np.random.default_rng(0)
    chunk = 7936  # blocks
    blocks = np.zeros((16 * chunk, 66), np.uint8)
    rare = rng.random((len(blocks), 64)) < 0.003
    blocks[:, :64][rare] = rng.integers(1, 256, int(rare.sum()), np.uint8)
    blocks[:chunk, :64] = rng.integers(0, 256, (chunk, 64), np.uint8)
    data = blocks.reshape(-1)
    coded = encode_tensor(ONE_TABLE, spec_of("TQ2_0", data), data)
    assert coded is not None
    assert parse_head(coded.head).length == len(coded.head)
    assert coded.size < data.size / 5


@pytest.fixture
def contexts(encode_payload: Encode) -> tuple[TensorSpec, Parts]:
    data = quantised("Q4_1", MANY)
    spec = spec_of("Q4_1", data)
    return spec, Parts.of(encode_payload(DEFAULT, spec, data), DEFAULT, spec)


def flagged_tables(number: int) -> bytes:
    """Return a grid section of Q4_1 in which the quants have ``number`` tables by context."""
    row = np.zeros((1, 256), np.uint16)
    row[0, :16] = 256
    return b"\0" + bytes(4) + bytes([0x80 | number]) + number * frequencies.serialise(row)


@pytest.mark.parametrize("number", [0, 1, CONTEXTS - 1, CONTEXTS + 1, 127])
def test_as_many_tables_as_contexts(
    number: int, contexts: tuple[TensorSpec, Parts], decode_payload: Decode
) -> None:
    spec, parts = contexts
    parts.sections[GRID] = flagged_tables(number)
    with pytest.raises(IntegrityError, match="contexts"):
        decode_payload(DEFAULT, spec, parts.seal())


def test_only_predicted_streams_have_contexts(
    contexts: tuple[TensorSpec, Parts], decode_payload: Decode
) -> None:
    spec, parts = contexts
    section = flagged_tables(CONTEXTS)
    parts.sections[GRID] = section[:1] + section[5:] + section[1:5]
    with pytest.raises(IntegrityError, match="contexts that nothing predicts"):
        decode_payload(DEFAULT, spec, parts.seal())


def test_values_too_wide_for_their_field(
    each_kernel: str, encode_payload: Encode, decode_payload: Decode
) -> None:
    """The table of a two-bit field says 100 for 3, which only the quants of late blocks have."""
    blocks = quantised("TQ2_0").reshape(BLOCKS, -1)
    blocks[:100, :64] &= 0x55
    blocks[-1, :64] = 0xFF
    spec = spec_of("TQ2_0", blocks)
    coded = encode_payload(ONE_TABLE, spec, blocks.reshape(-1))
    parts = Parts.of(coded, ONE_TABLE, spec)
    section = parts.sections[GRID]
    table, end = frequencies.parse(section, 2, 1)
    table[0, [3, 100]] = table[0, [100, 3]]
    parts.sections[GRID] = section[:2] + frequencies.serialise(table) + section[end:]
    with pytest.raises(IntegrityError, match="too wide"):
        decode_payload(ONE_TABLE, spec, parts.seal())


@pytest.mark.parametrize("name", BLOCK_DTYPES)
def test_chunks_of_blocks_are_not_larger_than_a_mebibyte(
    name: str, encode_payload: Encode, decode_payload: Decode
) -> None:
    size = BLOCK_DTYPES[name].block_bytes
    data = np.zeros(300 * size, np.uint8)
    spec = spec_of(name, data)
    parts = Parts.of(encode_payload(DEFAULT, spec, data), DEFAULT, spec)
    largest = (1 << 20) // size // 128 * 128
    parts.sections[PACK] = largest.to_bytes(4, "little")
    assert decode_payload(DEFAULT, spec, parts.seal()) == data.tobytes()
    parts.sections[PACK] = (largest + 128).to_bytes(4, "little")
    with pytest.raises(IntegrityError, match="impossible chunk size"):
        decode_payload(DEFAULT, spec, parts.seal())
