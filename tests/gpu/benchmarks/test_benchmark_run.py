"""The command of the benchmark of devices, with the simulator in the place of a device."""

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks.data.dataset import write_safetensors
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.cases import Line
from benchmarks.gpu.checks import GROUPS, groups
from benchmarks.gpu.data import made_up_layer
from benchmarks.gpu.figures import Figure
from tests.gpu.support.benchmarking import COPY, SHAPES, TINY, FakeTimer
from tests.gpu.support.devices import Device
from tests.gpu.support.streaming import Streaming
from unweight_codecs.errors import IntegrityError, ResourceError


@pytest.fixture
def simulated(device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put the simulator, a false clock and small matrices in place; returns a model."""
    if device.name == "cupy":
        pytest.skip("the device itself is what the benchmark is for")
    plan = partial(gpu.Plan, SHAPES, ("a",), 1, (("default", 17),), False)
    stand_ins: dict[str, object] = {
        "_opened": lambda number: Streaming(device),
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
    monkeypatch.setattr(gpu, "groups", lambda opened, model: [])  # another test compares them
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
