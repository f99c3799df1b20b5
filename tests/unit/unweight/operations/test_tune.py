"""``tune``: which matrices of a model are measured, and what is said where none can be."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from unweight.operations.compress import CompressOptions, compress
from unweight.operations.progress import NoProgress
from unweight.operations.tune import TUNERS, Tuner, tune
from unweight_codecs.accelerators import registry
from unweight_codecs.errors import ResourceError, UsageError
from unweight_gpu.palette.tuning import TuningReport, TuningRow
from unweight_gpu.tuner import CudaTuner

Write = Callable[..., Path]


class Recorder:
    """An accelerator and its tuner, which measures nothing and tells what it was asked."""

    def __init__(self, usable: bool = True) -> None:
        self.usable = usable
        self.asked: tuple[int, Sequence[tuple[int, int]], Sequence[int]] | None = None

    def probe(self, number: int = 0) -> tuple[bool, str]:
        return self.usable, "no driver"

    def tune(
        self, number: int, shapes: Sequence[tuple[int, int]], batches: Sequence[int]
    ) -> TuningReport:
        self.asked = number, shapes, batches
        row = TuningRow(1, 1, 1, {"bf16": 1e-6}, "bf16", cached=False)
        return TuningReport("device", (row,), ())


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Return the one accelerator of this installation."""
    found = Recorder()
    monkeypatch.setattr(registry, "accelerator_names", lambda: ("cuda",))
    monkeypatch.setattr(registry, "create_accelerator", lambda name: found)
    monkeypatch.setattr(TUNERS, "load", lambda name: found)
    return found


@pytest.fixture
def model(tmp_path: Path, write_model: Write) -> Path:
    """Return a model with two distinct BF16 matrices."""
    tensors = [
        ("a", "BF16", (64, 128), bytes(2 * 64 * 128)),
        ("b", "BF16", (32, 64), bytes(2 * 32 * 64)),
        ("c", "BF16", (64, 128), bytes(2 * 64 * 128)),
        ("d", "BF16", (128,), bytes(256)),
        ("e", "F32", (16, 16), bytes(1024)),
        ("f", "BF16", (0, 7), b""),
        ("g", "BF16", (2, 3, 4), bytes(48)),
    ]
    return write_model(tmp_path / "model.safetensors", tensors)


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:2"])
def test_each_matrix_once(recorder: Recorder, model: Path, device: str) -> None:
    report = tune(model, (1, 16), device)
    assert report.device == "device"
    assert recorder.asked == (2 if device == "cuda:2" else 0, [(32, 64), (64, 128)], (1, 16))


def test_a_compressed_model_has_the_matrices_of_its_original(
    recorder: Recorder, model: Path, tmp_path: Path
) -> None:
    coded = tmp_path / "coded.safetensors"
    compress(model, coded, CompressOptions(), NoProgress())
    tune(coded, (4,), "cuda")
    assert recorder.asked == (0, [(32, 64), (64, 128)], (4,))


@pytest.mark.parametrize("batches", [(), (0,), (1, -1), (1025,)])
def test_batches_that_make_no_sense(
    recorder: Recorder, model: Path, batches: tuple[int, ...]
) -> None:
    with pytest.raises(UsageError, match="batch must be"):
        tune(model, batches, "cuda")
    assert recorder.asked is None


def test_nothing_to_measure(recorder: Recorder, tmp_path: Path, write_model: Write) -> None:
    path = write_model(tmp_path / "m.safetensors", [("a", "F32", (4, 4), bytes(64))])
    with pytest.raises(UsageError, match="no BF16 matrix"):
        tune(path, (1,), "cuda")


def test_the_processor_is_not_tuned(recorder: Recorder, model: Path) -> None:
    with pytest.raises(UsageError, match="nothing to tune"):
        tune(model, (1,), "cpu")


def test_no_device(recorder: Recorder, model: Path) -> None:
    recorder.usable = False
    with pytest.raises(ResourceError, match="no device to tune: cuda: no driver"):
        tune(model, (1,), "auto")


def test_a_device_that_nothing_measures(
    recorder: Recorder, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "accelerator_names", lambda: ("acme", "cuda"))
    with pytest.raises(ResourceError, match="what brings acme does not measure products"):
        tune(model, (1,), "acme:1")


def test_the_tuner_of_this_project_is_found_by_the_name_of_its_accelerator() -> None:
    assert set(TUNERS.names()) <= set(registry.accelerator_names())
    tuner: Tuner = TUNERS.load("cuda")
    assert isinstance(tuner, CudaTuner)


def test_a_tuner_without_its_device() -> None:
    tuner: Tuner = CudaTuner()
    with pytest.raises(ResourceError, match="no CUDA device: "):
        tuner.tune(999, [(8, 8)], [1])
