"""``unweight tune`` on the command line; measuring itself needs a device."""

import json
from pathlib import Path

import pytest

from unweight.operations.tune import TUNERS
from unweight_cli.app import run
from unweight_codecs.accelerators import registry
from unweight_gpu.palette.tuning import TuningReport, TuningRow

REPORT = TuningReport(
    "A device, driver 13000",
    (
        TuningRow(64, 128, 1, {"bf16": 2e-6, "fused": 1.5e-6}, "fused", cached=False),
        TuningRow(64, 128, 64, {"bf16": 3e-6}, "bf16", cached=True),
    ),
    ("tuning.json: measurements are not kept: Read-only file system",),
)


class Accelerator:
    """Is there."""

    def probe(self, number: int = 0) -> tuple[bool, str]:
        return True, "a device"


class Tuner:
    """Returns the report, whatever is asked."""

    def tune(self, *asked: object) -> TuningReport:
        return REPORT


@pytest.fixture
def model(tmp_path: Path, write_model: object, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model, where a device is to be had."""
    monkeypatch.setattr(registry, "accelerator_names", lambda: ("cuda",))
    monkeypatch.setattr(registry, "create_accelerator", lambda name: Accelerator())
    monkeypatch.setattr(TUNERS, "load", lambda name: Tuner())
    tensors = [("a", "BF16", (64, 128), bytes(2 * 64 * 128))]
    path: Path = write_model(tmp_path / "model.safetensors", tensors)  # type: ignore[operator]
    return path


def test_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(model), "--batch", "1, 64"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "A device, driver 13000"
    rows = [line.split() for line in out.splitlines() if line.startswith("64 x 128")]
    assert rows == [
        ["64", "x", "128", "1", "2.0", "1.5", "fused"],
        ["64", "x", "128", "64", "3.0", "-", "bf16"],
    ]
    assert "1 of 2 measured earlier" in out
    assert err == "unweight: note: tuning.json: measurements are not kept: Read-only file system\n"


def test_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(REPORT.to_dict()))


@pytest.mark.parametrize("batch", ["", "1,", "x", "1;2", "1e3", "-1", "9" * 12])
def test_batches_that_are_no_numbers(
    model: Path, batch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", str(model), f"--batch={batch}"]) == 2
    assert "--batch" in capsys.readouterr().err
