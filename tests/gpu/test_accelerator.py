"""What the entry point names: whether there is a device and what it says, with CuPy played."""

import builtins
import json
import sys

import pytest

from tests.gpu.support.fake_cupy import FakeCupy
from unweight_codecs.errors import ResourceError
from unweight_gpu.accelerator import CudaAccelerator
from unweight_gpu.decoding.engine import CudaEngine
from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.palette.cuda import linear_backend
from unweight_gpu.palette.format import Layout
from unweight_gpu.palette.measurements import cache_file, key_of
from unweight_gpu.palette.strategy import Strategy


def test_a_device_is_described(cupy: FakeCupy) -> None:
    assert CudaAccelerator().probe(1) == (
        True,
        "device 1, 8.0 of 10.0 GB free, driver for CUDA 13.2, CuPy 14.0",
    )
    assert CudaAccelerator().probe(2) == (False, "there is no device 2, only 2")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("No module named 'cupy'", name="cupy"), "CuPy is not installed: pip"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "CuPy fails: No module named 'x'"),
        (ImportError("libcuda.so.1:\ncannot open"), "CuPy fails: libcuda.so.1: cannot open"),
        (OSError("wrong ELF class"), "CuPy fails: wrong ELF class"),
        (AttributeError(), "CuPy fails: AttributeError"),
    ],
)
def test_an_import_that_fails_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    real = builtins.__import__

    def broken(name: str, *rest: object) -> object:
        if name == "cupy":
            raise error
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(builtins, "__import__", broken)
    usable, detail = CudaAccelerator().probe()
    assert not usable
    assert detail.startswith(reason)
    with pytest.raises(ResourceError, match="no CUDA device: CuPy "):
        CudaAccelerator().require(0)


@pytest.mark.parametrize("asked", ["is_available", "Device"])
def test_a_driver_that_fails_is_a_reason(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("CUDA_ERROR_UNKNOWN:\nunknown error")

    monkeypatch.setattr(cupy.cuda, asked, fails)
    expected = "CuPy fails: CUDA_ERROR_UNKNOWN: unknown error"
    assert CudaAccelerator().probe() == (False, expected)


def test_no_device(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda, "is_available", lambda: False)
    with pytest.raises(ResourceError, match="no CUDA device: CuPy finds no CUDA device"):
        CudaAccelerator().open(0, 1, None)


def test_an_engine_on_a_device(cupy: FakeCupy) -> None:
    with CudaAccelerator().open(1, 1, None) as engine:
        assert isinstance(engine, CudaEngine)
        assert engine.name == "cuda:1"


def test_kernels_that_do_not_compile(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweight_gpu.kernels.source", lambda name: "error")
    with pytest.raises(ResourceError, match="the kernels do not compile"):
        CudaAccelerator().open(0, 1, None)


def test_an_installation_that_breaks_later(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupyx", None)
    with pytest.raises(ResourceError, match=r"the device fails: .*cupyx"):
        CudaAccelerator().open(0, 1, None)


def test_layers_use_what_was_measured(cupy: FakeCupy) -> None:
    device, layout = CudaDevice(1), Layout(4096, 4096)
    assert linear_backend(device).chooser.best(layout, 1, frozenset(Strategy)) is Strategy.FUSED
    file = cache_file()
    entry = {key_of(device.description, layout, 1): {"bf16": 1e-6, "fused": 2e-6}}
    file.write_text(json.dumps({"version": 1, "seconds": entry}))
    assert linear_backend(device).chooser.best(layout, 1, frozenset(Strategy)) is Strategy.BF16
