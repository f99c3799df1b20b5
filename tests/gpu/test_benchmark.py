"""The benchmark of devices: all of it but CUDA's clock runs in the simulator, on small matrices."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import gpu
from benchmarks.dataset import load, write_safetensors
from benchmarks.gpu_cases import Cases, Line, Sizes
from benchmarks.gpu_check_decoding import real
from benchmarks.gpu_checks import GROUPS, groups
from benchmarks.gpu_data import LAYER, Layer, made_up_layer, model_layer, trained
from benchmarks.gpu_decoding import decoding
from benchmarks.gpu_figures import (
    DECODING,
    EXPANDING,
    FUSED,
    LOADING,
    Figure,
    Target,
    microseconds,
    report,
    terabytes,
)
from benchmarks.gpu_files import copied, loading, write_layers
from benchmarks.gpu_palettes import expanding, products
from benchmarks.gpu_results import Results
from benchmarks.measure import Spread
from tests.gpu.devices import Device
from tests.gpu.palette_model import narrowed, widened
from tests.gpu.streaming import Streaming
from unweight_codecs.errors import IntegrityError, ResourceError, UsageError
from unweight_codecs.kernels.base import Bytes
from unweight_gpu.device import Array, StreamingDevice
from unweight_gpu.timing import Run, copies_of

DTYPES = ("BF16", "F32", "F64", "F8_E5M2", "I8")
TINY = Sizes(DTYPES, (96, 132), 12, ((64, 128), (24, 528)), 8192)
LARGE = 8000  # bytes: more than what describes a batch, less than what is decoded
SHAPES = {"a": (64, 128), "b": (32, 256)}


@pytest.fixture
def layer() -> Layer:
    """Return a layer of two matrices."""
    return made_up_layer(SHAPES)


class FakeTimer:
    """Runs everything once, and takes the times from a list."""

    def samples(self, runs: Sequence[Run]) -> Sequence[float]:
        for run in runs[:2]:
            run()
        runs[-1]()
        return [2e-6, 1e-6, 4e-6]


class NumpyPeer:
    """Products in binary64, rounded once."""

    name = "NumPy"

    def __init__(self, device: StreamingDevice, error: float = 0.0) -> None:
        self._device, self._factor = device, 1 + error

    def product(self, words: Array, x: Array, out: Array) -> Run:
        def run() -> None:
            left, right = (widened(self._device.to_host(each)) for each in (x, words))
            exact = left.astype(np.float64) @ right.astype(np.float64).T
            out[...] = self._device.array(narrowed(exact * self._factor))

        return run


# ---- Comparisons


@pytest.mark.parametrize("name", GROUPS)
def test_kernels_are_compared(streaming: StreamingDevice, name: str) -> None:
    line = dict(groups(streaming, TINY))[name]()
    assert line.name == name
    assert line.cases >= 6
    assert not line.stored


def test_real_weights_are_compared(streaming: StreamingDevice, layer: Layer) -> None:
    assert real(streaming, layer) == Line("real weights: random", 2)


def test_a_difference_is_told() -> None:
    cases = Cases("decoding")
    cases.equal("the same", np.array([np.nan, -0.0]), np.array([np.nan, -0.0]))
    with pytest.raises(IntegrityError, match="decoding: zeros, byte 7: the device differs"):
        cases.equal("zeros", np.array([0.0, 0.0]), np.array([-0.0, 0.0]))
    with pytest.raises(IntegrityError, match="shapes: the device differs"):
        cases.equal("shapes", np.zeros(2), np.zeros(3))
    assert str(cases.line()) == "decoding: 1 cases, ok"


@pytest.mark.parametrize("name", [name for name in GROUPS if name != "damaged chunks"])
def test_a_wrong_bit_is_noticed(device: Device, name: str) -> None:
    if device.name == "cupy":
        pytest.skip("only the simulator can be made wrong")
    with pytest.raises(IntegrityError, match=f"^{name}: .* the device differs"):
        dict(groups(Wrong(device), TINY))[name]()


def test_a_chunk_that_is_not_refused_is_noticed(
    streaming: StreamingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu_check_decoding._damaging", lambda span, _: span.read)
    with pytest.raises(IntegrityError, match="damaged chunks: fast: the chunks that are refused"):
        dict(groups(streaming, TINY))["damaged chunks"]()


class Wrong(Streaming):
    """Changes a bit of every large array on the way to the device, and of words on the way back."""

    def array(self, values: NDArray[Any]) -> Array:
        return super().array(_flipped(values))

    def download(self, source: Array, target: Bytes) -> None:
        target[...] = _flipped(source)


def _flipped(values: NDArray[Any]) -> NDArray[Any]:
    copy = values.copy()
    if copy.nbytes >= LARGE:
        copy.reshape(-1).view(np.uint8)[copy.nbytes // 2] ^= 1
    return copy


# ---- Measurements


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
        ("24 x 128, batch 1", "NumPy", 1, FUSED),
        ("24 x 128, batch 4", "NumPy", 1, None),
    ]
    (alone,) = products(streaming, FakeTimer(), None, words, FUSED, [1])
    assert (alone.peer, alone.ratio, alone.met) == ("", None, None)


def test_a_peer_that_multiplies_otherwise_is_told(streaming: StreamingDevice) -> None:
    words, peer = [trained((24, 128), 0)], NumpyPeer(streaming, 0.1)
    with pytest.raises(IntegrityError, match="NumPy and the fused kernel"):
        list(products(streaming, FakeTimer(), peer, words, batches=[1]))


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


# ---- Results

COPY = Figure("device copy", "2048 MiB", Spread(4.3, 4.2, 4.4), "TB/s")
DECODED = Figure("rANS to BF16", "default", Spread(0.9, 0.8, 1.0), "TB/s", target=DECODING)
MULTIPLIED = Figure(
    "fused product", "batch 1", Spread(6, 5, 7), "us", "torch BF16", Spread(9, 9, 9), FUSED
)


def test_targets() -> None:
    assert (COPY.met, DECODED.met, MULTIPLIED.met) == (None, False, True)
    assert replace(DECODED, target=Target(0.9, "value")).met
    assert MULTIPLIED.ratio == 1.5
    assert replace(MULTIPLIED, unit="GB/s").ratio == 6 / 9
    assert terabytes(10**12, [1.0, 2.0, 4.0]) == Spread(0.5, 0.25, 1.0)
    assert microseconds([1e-6]) == Spread(1.0, 1.0, 1.0)


def test_the_table() -> None:
    lines = report([COPY, DECODED, MULTIPLIED]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["name", "size", "value", "unit", "peer", "ratio", "target", "met?"]
    assert cells[2] == ["device copy", "2048 MiB", "4.30 (4.20-4.40)", "TB/s", "", "", "", ""]
    assert cells[3][5:] == ["", "1 TB/s", "no"]
    assert cells[4][4:] == ["torch BF16: 9.00", "1.50", "1.25 x", "yes"]


def test_the_file(tmp_path: Path) -> None:
    results = Results("a device, driver 1", tmp_path / "gpu.json", notes=["a note"])
    results.compare([("decoding", lambda: Line("decoding", 30))])
    results.measure([("all", lambda: [COPY, DECODED, MULTIPLIED])])
    document = json.loads((tmp_path / "gpu.json").read_text())
    assert document["device"] == "a device, driver 1"
    assert document["checks"] == [{"name": "decoding", "cases": 30, "stored": 0}]
    assert document["figures"][1]["value"] == {"median": 0.9, "low": 0.8, "high": 1.0}
    assert [figure["met"] for figure in document["figures"]] == [None, False, True]
    assert document["figures"][2]["target"] == {"least": 1.25, "of": "ratio"}
    assert document["notes"] == ["a note"]
    assert set(document["versions"]) >= {"unweight", "torch", "cupy-cuda13x"}
    assert "Note: a note" in results.text()
    assert "a device, driver 1" in results.text()


def test_a_part_that_fails_does_not_end_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def memory() -> Iterator[Figure]:
        yield COPY
        raise ResourceError("the device has too little memory")

    def mistake() -> Iterator[Figure]:
        yield from ()
        raise TypeError("a mistake")

    results = Results("a device", tmp_path / "gpu.json")
    results.measure([("first", memory), ("second", mistake), ("third", lambda: [DECODED])])
    assert results.figures == [COPY, DECODED]
    assert results.failures == [6, 1]
    assert results.notes == [
        "first failed: the device has too little memory",
        "second failed: a mistake",
    ]
    assert "TypeError: a mistake" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "gpu.json").read_text())["figures"]) == 2


def test_a_difference_ends_everything(tmp_path: Path) -> None:
    def differs() -> Line:
        raise IntegrityError("decoding: BF16: the device differs from the processor")

    results = Results("a device", tmp_path / "gpu.json")
    with pytest.raises(IntegrityError):
        results.compare([("decoding", differs), ("palettes", lambda: Line("palettes", 1))])
    assert not results.checks
    assert "differs" in json.loads((tmp_path / "gpu.json").read_text())["notes"][0]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    results = Results("a device", tmp_path / "missing" / "gpu.json")
    with pytest.raises(ResourceError, match="No such file or directory"):
        results.compare([("decoding", lambda: Line("decoding", 1))])


@pytest.fixture
def simulated(device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put the simulator, a false clock and small matrices in place; returns a model."""
    if device.name == "cupy":
        pytest.skip("the device itself is what the benchmark is for")
    plan = partial(gpu.Plan, SHAPES, ("a",), 1, (("default", 17),), False)
    stand_ins: dict[str, Callable[..., object]] = {
        "_opened": lambda number: Streaming(device),
        "name_of": lambda opened: "the simulator",
        "EventTimer": lambda opened: FakeTimer(),
        "device_copy": lambda opened, timer: COPY,
        "peers": lambda opened, note: [],
        "nvcomp_ans": lambda opened, timer, layer, note: note("nvCOMP is not measured") or (),
        "groups": lambda opened, model: groups(opened, TINY, model),
        "plan": lambda quick, model: plan(model),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(gpu, name, stand_in)
    path = tmp_path / "model.safetensors"
    write_safetensors(path, made_up_layer(SHAPES).tensors())
    return path


def test_a_whole_run(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = simulated.with_suffix(".json")
    assert gpu.main(["--model", str(simulated), "--json", str(file)]) == 0
    document, printed = json.loads(file.read_text()), capsys.readouterr()
    assert [line["name"] for line in document["checks"]][:-1] == list(GROUPS)
    assert document["checks"][-1]["name"] == "real weights: model.safetensors"
    assert [figure["name"] for figure in document["figures"]] == [
        "device copy",
        "rANS to BF16",
        "rANS to palette",
        "palette to BF16",
        *["fused product"] * 3,
        "load",
        "load as palettes",
        "rANS to BF16",
        "rANS to palette",
        "load",
        "load as palettes",
    ]
    assert "decoding: 15 cases, ok" in printed.out
    assert printed.out.count("| name ") == 1
    assert "Note: nvCOMP is not measured" in printed.out
    assert not printed.err


def test_a_run_with_a_failure_says_so(
    simulated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(device: object, timer: object) -> Figure:
        raise ResourceError("the device has too little memory")

    monkeypatch.setattr(gpu, "device_copy", fails)
    assert gpu.main([]) == 6
    printed = capsys.readouterr()
    assert "device copy failed: the device has too little memory" in printed.out
    assert "palette to BF16" in printed.out


def test_a_run_with_a_difference_ends(
    simulated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def differs() -> Line:
        raise IntegrityError("decoding: BF16: the device differs from the processor")

    monkeypatch.setattr(gpu, "groups", lambda opened, model: [("decoding", differs)])
    assert gpu.main([]) == 4
    printed = capsys.readouterr()
    assert "measured" not in printed.out
    assert printed.err == "benchmarks.gpu: decoding: BF16: the device differs from the processor\n"


def test_without_a_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def probe(self: object, number: int) -> tuple[bool, str]:
        return False, "no driver"

    monkeypatch.setattr("unweight_gpu.accelerator.CudaAccelerator.probe", probe)
    assert gpu.main(["--device", "1"]) == 6
    expected = "benchmarks.gpu: no CUDA device: no driver (see unweight doctor)\n"
    assert capsys.readouterr() == ("", expected)
