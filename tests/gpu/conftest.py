"""Where the tests of kernels run: in the simulator, and on a CUDA device if there is one."""

import sys
from pathlib import Path

import pytest

from benchmarks.gpu.data import Layer, made_up_layer
from tests.gpu.simulator.compiler import find_compiler
from tests.gpu.simulator.library_cache import user_folder
from tests.gpu.support.benchmarking import SHAPES
from tests.gpu.support.devices import CupyDevice, Device, Simulator, why_no_device
from tests.gpu.support.fake_cupy import FakeCupy
from tests.gpu.support.streaming import Streaming
from unweight_gpu.device import compilation
from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.device.interface import StreamingDevice


@pytest.fixture(scope="session")
def simulator(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Simulator:
    """Return the simulator; compiled kernels are kept for later runs."""
    if sys.platform != "linux":
        pytest.skip("the simulator is for Linux")
    if find_compiler() is None:
        pytest.skip("the simulator needs a C++ compiler: g++, or another in CXX")
    return Simulator(_cache(request.config, tmp_path_factory))


def _cache(config: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the user's cache, which outlives a checkout; else pytest's, else a folder for once."""
    folder = user_folder()
    if folder is not None:
        return folder
    cache: pytest.Cache | None = getattr(config, "cache", None)  # its plugin can be switched off
    try:
        if cache is not None:
            return cache.mkdir("cuda-on-cpu")
    except OSError:  # a read-only checkout
        pass
    return tmp_path_factory.mktemp("cuda-on-cpu")


@pytest.fixture(scope="session")
def cupy_device() -> CupyDevice:
    """Return the CUDA device."""
    return CupyDevice()


@pytest.fixture
def streaming(device: Device) -> StreamingDevice:
    """Return the device with queues."""
    return CudaDevice(0) if device.name == "cupy" else Streaming(device)


@pytest.fixture
def layer() -> Layer:
    """Return a layer of two matrices."""
    return made_up_layer(SHAPES)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    """Put the fake in the place of CuPy, and an empty cache in the place of the user's."""
    fake = FakeCupy()
    for name, module in fake.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compilation._machine_code.cache_clear()
    return fake


# Parameters for a device that is not there are not collected; the head of the report says so.
_ON_DEVICE = [] if why_no_device() else [pytest.param("cupy", marks=pytest.mark.gpu)]


@pytest.fixture(params=["simulator", *_ON_DEVICE])
def device(request: pytest.FixtureRequest) -> Device:
    """Run the test in the simulator and on a CUDA device."""
    name = {"simulator": "simulator", "cupy": "cupy_device"}[request.param]
    found: Device = request.getfixturevalue(name)
    return found
