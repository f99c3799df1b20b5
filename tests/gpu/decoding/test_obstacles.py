"""What no kernel knows is decoded on the processor, and never taken for something else."""

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.support.devices import Device
from tests.gpu.support.streaming import Streaming
from unweight_codecs.accelerators import CodedSpan
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.payload.coders import CODERS, Coder
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.presets import BOUNDED, PRESETS
from unweight_codecs.tensor_codec import encode_tensor, spans_of
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.decoding.batch import BatchBuilder
from unweight_gpu.decoding.engine import CudaEngine
from unweight_gpu.decoding.obstacles import obstacle, span_obstacle
from unweight_gpu.decoding.records import KIND_OF_CODER

SPEC = TensorSpec("t", "U8", (96, 256))
RAMPS = np.tile(np.arange(256, dtype=np.uint8), 96)
BYTES = (np.random.default_rng(0).normal(0, 4, 96 * 256).astype(np.int8)).view(np.uint8)


class Deltas(Coder):
    """Keeps the first value of a ramp."""

    name = "acme.deltas"

    def encode_values(self, values: Bytes, bits: int) -> Bytes | None:
        return values[:1] if np.all(np.diff(values) == 1) else None

    def decode_values(self, data: Bytes, count: int, bits: int) -> Bytes:
        if data.size != 1:
            raise IntegrityError("a ramp has one first value")
        return np.arange(int(data[0]), int(data[0]) + count).astype(np.uint8)


def spans_with(pipeline: Pipeline, data: Bytes) -> list[CodedSpan]:
    encoded = encode_tensor(pipeline, SPEC, data)
    assert encoded is not None
    return spans_of(pipeline, encoded, 2)


@pytest.fixture
def with_deltas(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Return a pipeline that may code streams by a coder from elsewhere."""
    monkeypatch.setitem(CODERS, Deltas.name, Deltas())
    pack = Pack(chunk_log2=12, coders=Deltas.name)
    return pipeline_of("test", (*PRESETS["default"].stages[:-1], pack))


def test_a_coder_that_no_kernel_knows_is_left_to_the_processor(
    device: Device, with_deltas: Pipeline
) -> None:
    if device.name == "cupy":
        pytest.skip("only the simulator counts")
    unknown, known = spans_with(with_deltas, RAMPS), spans_with(with_deltas, BYTES)
    assert {span_obstacle(span) for span in unknown} == {"the coder acme.deltas"}
    assert {span_obstacle(span) for span in known} == {""}
    streaming = Streaming(device)
    with CudaEngine(streaming, "cuda:0") as engine:
        found = [[piece.words.copy() for piece in p] for p in engine.decode([unknown, known])]
    assert np.array_equal(np.concatenate(found[0]), RAMPS)
    assert np.array_equal(np.concatenate(found[1]), BYTES)
    assert streaming.uploads == [sum(-(-span.coded_bytes // 256) * 256 for span in known)]


@pytest.mark.parametrize("coder", BUILT_IN_CODERS)
def test_every_built_in_coder_has_a_kernel_or_is_an_obstacle(coder: str) -> None:
    (span, *_) = spans_with(PRESETS["default"], BYTES)
    directory = span.directory.copy()
    directory["segments"][0, 0] = BUILT_IN_CODERS.index(coder) << 28
    expected = "" if coder in KIND_OF_CODER else f"the coder {coder}"
    assert obstacle(span.model, directory) == expected


def test_a_number_without_a_coder_is_damage() -> None:
    (coded, *_) = spans_with(PRESETS["default"], BYTES)
    span = coded.read(np.zeros(coded.coded_bytes, np.uint8))
    span.directory = span.directory.copy()
    span.directory["segments"][0, 0] |= 15 << 28
    assert obstacle(coded.model, span.directory) == ""
    with pytest.raises(IntegrityError, match="a chunk uses an unknown coder"):
        BatchBuilder().add(span, coded.model, 0)


@pytest.mark.parametrize("pipelines", [PRESETS, BOUNDED])
def test_kernels_stand_for_exactly_the_stages_that_they_know(
    pipelines: dict[str, Pipeline],
) -> None:
    (span, *_) = spans_with(PRESETS["default"], BYTES)
    for name, pipeline in pipelines.items():
        types = pipeline.stage_types
        assert span_obstacle(replace(span, stage_types=types)) == "", name
        for slot, known in enumerate(types):
            others = (*types[:slot], type("Derived", (known,), {}), *types[slot + 1 :])
            found = span_obstacle(replace(span, stage_types=others))
            assert found == "a stage without a kernel"
