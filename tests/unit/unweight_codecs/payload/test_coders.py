"""Entropy coders: each gives back what it was given, and a plugin's takes its place among them."""

from collections.abc import Callable

import numpy as np
import pytest

from unweight_codecs.errors import FormatError, IntegrityError, UsageError
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.payload import coders
from unweight_codecs.payload.coders import CODERS, Coder, StreamValues
from unweight_codecs.payload.directory import LOCATED
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_from_dict, pipeline_of
from unweight_codecs.presets import preset
from unweight_codecs.tensor_spec import TensorSpec

SPEC = TensorSpec("t", "I16", (96, 64))
RAMP = np.tile(np.arange(SPEC.nbytes // 16, dtype="<u2"), 8).view(np.uint8)


class Deltas(Coder):
    """Keeps the first value of a ramp, and nothing where values are none."""

    name = "acme.deltas"

    def encode_values(self, values: Bytes, bits: int) -> Bytes | None:
        return values[:1] if np.all(np.diff(values) == 1) else None

    def decode_values(self, data: Bytes, count: int, bits: int) -> Bytes:
        if data.size != 1:
            raise IntegrityError("a ramp has one first value")
        return np.arange(int(data[0]), int(data[0]) + count).astype(np.uint8)


def with_coders(names: str) -> Pipeline:
    pack = Pack(chunk_log2=12, coders=names)
    return pipeline_of("test", (*preset("default").stages[:-1], pack))


@pytest.fixture
def deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CODERS, Deltas.name, Deltas())


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("name", [name for name in CODERS if name != "rans"])
def test_values_come_back(name: str, bits: int) -> None:
    values = np.random.default_rng(bits).integers(0, 1 << bits, 3 * 128 + 5, np.uint8)
    if name == "constant":
        values[:] = values[0]
    stream = StreamValues(values, values.size, 128, bits)
    segments = CODERS[name].encode(stream, stream.chunks)
    assert sorted(segments) == [0, 1, 2, 3]
    coded = np.concatenate([segments[i].data for i in sorted(segments)])
    lengths = np.array([segments[i].data.size for i in sorted(segments)])
    located = np.zeros(4, LOCATED)
    located["length"], located["offset"] = lengths, np.cumsum(lengths) - lengths
    decoded = StreamValues(np.zeros_like(values), values.size, 128, bits)
    CODERS[name].decode(decoded, coded, located, np.arange(4))
    assert np.array_equal(decoded.values, values)


def test_built_in_coders_are_numbered_as_in_files() -> None:
    assert tuple(CODERS) == BUILT_IN_CODERS == ("raw", "constant", "rans", "zstd")


@pytest.mark.usefixtures("deltas")
def test_a_coder_from_elsewhere_codes_what_it_makes_smallest(
    each_kernel: str, encode_payload: Callable[..., bytes], decode_payload: Callable[..., bytes]
) -> None:
    ramps = np.tile(np.arange(256, dtype=np.uint8), 96)
    spec = TensorSpec("t", "U8", (96, 256))
    pipeline = with_coders("acme.deltas")
    coded = encode_payload(pipeline, spec, ramps)
    assert len(coded) < len(encode_payload(with_coders(""), spec, ramps))
    read_back = pipeline_from_dict(pipeline.to_dict())
    assert decode_payload(read_back, spec, coded) == ramps.tobytes()
    with pytest.raises(IntegrityError, match="unknown coder"):
        decode_payload(with_coders(""), spec, coded)


@pytest.mark.usefixtures("deltas")
def test_a_coder_that_never_helps_changes_nothing(encode_payload: Callable[..., bytes]) -> None:
    data = np.random.default_rng(0).integers(0, 256, SPEC.nbytes, np.uint8)
    assert encode_payload(with_coders("acme.deltas"), SPEC, data) == encode_payload(
        with_coders(""), SPEC, data
    )


@pytest.mark.usefixtures("deltas")
def test_pipelines_say_which_coders_they_number() -> None:
    settings = with_coders("acme.deltas").to_dict()["stages"][-1]["configuration"]
    assert settings == {"chunk_log2": 12, "coders": "acme.deltas"}
    assert "coders" not in with_coders("").to_dict()["stages"][-1]["configuration"]


def test_a_coder_that_is_not_installed_is_named() -> None:
    with pytest.raises(FormatError, match=r"the coder 'acme\.nothing' is not installed"):
        with_coders("acme.nothing")


@pytest.mark.parametrize("names", ["+".join(["raw"] * 13), 7, None, ["raw"]])
def test_coders_are_a_few_names(names: object) -> None:
    with pytest.raises(UsageError, match="coders must be up to 12 names"):
        Pack(coders=names)  # type: ignore[arg-type]


def test_a_rans_segment_needs_tables() -> None:
    stream = StreamValues(np.zeros(128, np.uint8), 128, 128, 8)
    assert CODERS["rans"].encode(stream, stream.chunks) == {}
    located = np.zeros(1, LOCATED)
    with pytest.raises(IntegrityError, match="a table that the file does not have"):
        CODERS["rans"].decode(stream, np.zeros(130, np.uint8), located, np.arange(1))


def test_a_coder_of_an_unknown_name() -> None:
    with pytest.raises(FormatError) as error:
        coders.coder_named("x" * 100_000)
    assert len(error.value.message) < 400


class Short(Deltas):
    name = "acme.short"

    def decode_values(self, data: Bytes, count: int, bits: int) -> Bytes:
        return data


def test_a_coder_that_returns_too_few_values_is_found_out(
    monkeypatch: pytest.MonkeyPatch, encode_payload: Callable[..., bytes]
) -> None:
    monkeypatch.setitem(CODERS, Short.name, Short())
    ramps = np.tile(np.arange(256, dtype=np.uint8), 96)
    with pytest.raises(IntegrityError, match=r"coder acme\.short has a wrong length"):
        encode_payload(with_coders("acme.short"), TensorSpec("t", "U8", (96, 256)), ramps)
