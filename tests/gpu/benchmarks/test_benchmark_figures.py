"""What the benchmark of devices measures: all of it but the clock runs in the simulator."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cpu.measure import Spread
from benchmarks.data.dataset import load, write_safetensors
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.data import LAYER, Layer, made_up_layer, model_layer, trained
from benchmarks.gpu.decoding import decoding
from benchmarks.gpu.figures import DECODING, EXPANDING, FUSED, LOADING
from benchmarks.gpu.files import copied, loading, write_layers
from benchmarks.gpu.palettes import expanding, products
from benchmarks.gpu.results import Results
from tests.gpu.support.benchmarking import FakeTimer, NumpyPeer
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_gpu.device.interface import StreamingDevice
from unweight_gpu.device.timing import copies_of


def test_decoding_is_measured(streaming: StreamingDevice, layer: Layer) -> None:
    cases = (("default", 17), ("default", 15), ("max", 17))
    figures = list(decoding(streaming, FakeTimer(), layer, cases, DECODING))
    assert [(f.name, f.size.split(",")[0], f.target) for f in figures] == [
        ("rANS to BF16", "default", DECODING),
        ("rANS to palette", "default", None),
        ("rANS to BF16", "default", None),
        ("rANS to palette", "default", None),
        ("rANS to BF16", "max", None),
    ]
    assert figures[0].value == Spread(*(32768 / s / 1e12 for s in (2e-6, 4e-6, 1e-6)))


def test_palettes_are_measured(streaming: StreamingDevice, layer: Layer) -> None:
    figure = expanding(streaming, FakeTimer(), layer)
    assert figure.value.median == 32768 / 2e-6 / 1e12
    words, peer = [trained((24, 128), 0)], NumpyPeer(streaming)
    figures = list(products(streaming, FakeTimer(), peer, words, FUSED, [1, 4]))
    assert [(f.size, f.peer, f.ratio, f.target) for f in figures] == [
        ("24 x 128, tokens 1", "NumPy", 1, FUSED),
        ("24 x 128, tokens 4", "NumPy", 1, None),
    ]
    (alone,) = products(streaming, FakeTimer(), None, words, FUSED, [1])
    assert (alone.peer, alone.ratio, alone.met) == ("", None, None)


def test_a_peer_that_multiplies_otherwise_is_told(streaming: StreamingDevice) -> None:
    words, peer = [trained((24, 128), 0)], NumpyPeer(streaming, 0.1)
    with pytest.raises(IntegrityError, match="NumPy and the fused kernel"):
        list(products(streaming, FakeTimer(), peer, words, token_counts=[1]))


def test_files_are_measured(streaming: StreamingDevice, layer: Layer, tmp_path: Path) -> None:
    source = write_layers(tmp_path, layer, 3)
    assert len(load("layers", source).tensors) == 6
    pieces = copied(streaming, source, 10_000)
    assert b"".join(streaming.to_host(p).tobytes() for p in pieces) == source.read_bytes()
    figures = list(loading(streaming, source, tmp_path, LOADING, rounds=2, batch_bytes=20_000))
    assert [figure.name for figure in figures] == ["load", "load as palettes"]
    for figure in figures:
        assert figure.value.low > 0
        assert figure.peer_value == figures[0].peer_value
    assert [figure.target for figure in figures] == [LOADING, None]


def test_a_layer_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, made_up_layer({"a": (64, 128), "b": (64, 256)}).tensors())
    assert model_layer(path, 64 * 128 * 2).weights == 64 * 128
    assert len(model_layer(path, 1 << 20).matrices) == 2
    with pytest.raises(UsageError, match="no BF16 matrix"):
        model_layer(path, 100)


def test_what_is_measured() -> None:
    chosen = gpu.plan(quick=False, model=None)
    assert chosen.shapes == dict(LAYER)
    assert 2.1e8 < sum(rows * cols for rows, cols in chosen.shapes.values()) < 2.2e8
    assert len(chosen.cases) == 6
    assert chosen.is_judged
    quick = gpu.plan(quick=True, model=None)
    assert not quick.is_judged
    assert quick.shapes["gate_proj"] == (3584, 1024)
    assert copies_of(2 * 4096 * 4096) == 8
    assert copies_of(1 << 30) == 1
    assert copies_of(100) == 16


def test_all_sections(streaming: StreamingDevice, layer: Layer, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, layer.tensors())
    chosen = replace(gpu.plan(quick=True, model=path), products=("a",), layers=1)
    chosen = replace(chosen, cases=(("default", 17),), is_judged=True)
    results = Results("a device")
    beside = [NumpyPeer(streaming), NumpyPeer(streaming)]
    results.measure(gpu.sections(streaming, FakeTimer(), chosen, layer, layer, beside, tmp_path))
    assert not results.failures
    assert [(figure.name, figure.target) for figure in results.figures] == [
        ("rANS to BF16", DECODING),
        ("rANS to palette", None),
        ("palette to BF16", EXPANDING),
        *[("fused product", FUSED), *[("fused product", None)] * 5],
        ("load", LOADING),
        ("load as palettes", None),
        ("rANS to BF16", None),
        ("rANS to palette", None),
        ("load", None),
        ("load as palettes", None),
    ]
