"""Compiling for a device: with which options, and how often. CuPy itself is played by a fake."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from unweight_codecs.errors import ResourceError
from unweight_gpu import compilation
from unweight_gpu.cupy_device import CudaDevice

SOURCE = 'extern "C" __global__ void k(float *x) { x[0] = 1; }'


class CompileError(Exception):
    """What CuPy raises; it is no RuntimeError."""


class FakeCupy(ModuleType):
    """The part of CuPy that compiles, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.compiled = list[tuple[str, tuple[str, ...]]]()
        self.loaded = list[str]()
        self.launched = list[tuple[object, ...]]()
        self.current = list[int]()
        compiler = ModuleType("cupy.cuda.compiler")
        compiler.__dict__.update(CompileException=CompileError, compile_using_nvrtc=self._compile)
        self.cuda = ModuleType("cupy.cuda")
        self.cuda.__dict__.update(
            Device=lambda number=0: FakeDevice(self, number),
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            compiler=compiler,
        )
        self.modules = {
            "cupy": self,
            "cupy.cuda": self.cuda,
            "cupy.cuda.compiler": compiler,
            "cupyx": ModuleType("cupyx"),
        }

    def _compile(self, source: str, options: tuple[str, ...]) -> tuple[bytes, None]:
        self.compiled.append((source, options))
        if "error" in source:
            raise CompileError("k.cu(1): error: no\nmore of it")
        return b"machine code", None

    def RawModule(self, path: str) -> SimpleNamespace:
        self.loaded.append(path)
        return SimpleNamespace(get_function=self._function)

    def _function(self, name: str) -> object:
        if name == "missing":
            raise RuntimeError("CUDA_ERROR_NOT_FOUND: named symbol not found")

        def launch(grid: object, block: object, args: object, shared_mem: int) -> None:
            assert self.current == [1]
            if name == "failing":
                raise RuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
            self.launched.append((name, grid, block, args, shared_mem))

        assert self.current == [1]
        return launch


class FakeDevice:
    compute_capability = "90"

    def __init__(self, cupy: FakeCupy, number: int) -> None:
        self._cupy, self._number = cupy, number

    def __enter__(self) -> None:
        self._cupy.current.append(self._number)

    def __exit__(self, *_: object) -> None:
        self._cupy.current.pop()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    """Put the fake in the place of CuPy, and an empty cache in the place of the user's."""
    fake = FakeCupy()
    for name, module in fake.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compilation._machine_code.cache_clear()
    return fake


def test_subnormal_numbers_stay_and_nothing_is_fused(cupy: FakeCupy) -> None:
    compilation.compiled(SOURCE)
    assert cupy.compiled == [(SOURCE, ("-std=c++17", "--fmad=false"))]


def test_a_source_is_compiled_once(cupy: FakeCupy, tmp_path: Path) -> None:
    file = compilation.compiled(SOURCE)
    assert file.read_bytes() == b"machine code"
    assert file.parent == tmp_path / "cache" / "unweight" / "kernels"
    compilation._machine_code.cache_clear()  # as in another process
    assert compilation.compiled(SOURCE) == file
    assert compilation.compiled(SOURCE + " ") != file
    assert len(cupy.compiled) == 2
    assert not list(file.parent.glob(".*"))


def test_without_a_cache_to_write(cupy: FakeCupy, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    for _ in range(2):
        assert compilation.compiled(SOURCE).read_bytes() == b"machine code"
    assert len(cupy.compiled) == 1


def test_what_does_not_compile_is_one_line(cupy: FakeCupy) -> None:
    with pytest.raises(ResourceError) as found:
        compilation.compiled("error")
    assert found.value.message.endswith("for compute capability 90: k.cu(1): error: no")


def test_kernels_start_on_their_device(cupy: FakeCupy) -> None:
    module = CudaDevice(1).load(SOURCE)
    function = module.get_function("k")
    assert module.get_function("k") is function
    function((2,), (32,), (np.uint32(7),), 16)
    assert cupy.launched == [("k", (2,), (32,), (np.uint32(7),), 16)]
    assert cupy.loaded == [str(compilation.compiled(SOURCE))]
    assert not cupy.current


def test_failures_of_kernels_are_resource_errors(cupy: FakeCupy) -> None:
    module = CudaDevice(1).load(SOURCE)
    with pytest.raises(ResourceError, match="the device fails: CUDA_ERROR_NOT_FOUND"):
        module.get_function("missing")
    with pytest.raises(ResourceError, match="the device fails: CUDA_ERROR_INVALID_VALUE"):
        module.get_function("failing")((1,), (1,), ())
