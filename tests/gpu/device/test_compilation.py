"""Compiling for a device: with which options, and how often. CuPy itself is played by a fake."""

from pathlib import Path

import numpy as np
import pytest

from tests.gpu.support.fake_cupy import FakeCupy
from unweight_codecs.errors import ResourceError
from unweight_gpu.device import compilation
from unweight_gpu.device.cache import replace_file
from unweight_gpu.device.cupy_device import CudaDevice

SOURCE = 'extern "C" __global__ void k(float *x) { x[0] = 1; }'


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


def test_a_damaged_file_is_compiled_again(cupy: FakeCupy) -> None:
    file = compilation.compiled(SOURCE)
    file.write_bytes(b"mach")
    CudaDevice(1).load(SOURCE)
    assert cupy.loaded == [str(file)] * 2
    assert file.read_bytes() == b"machine code"


def test_a_damaged_file_that_cannot_be_replaced(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = compilation.compiled(SOURCE)
    file.write_bytes(b"mach")

    def refuse(target: Path, data: bytes) -> None:
        if target == file:
            raise PermissionError(13, "Permission denied")
        replace_file(target, data)

    monkeypatch.setattr(compilation, "replace_file", refuse)
    CudaDevice(1).load(SOURCE)
    assert len(cupy.loaded) == 2
    assert cupy.loaded[1] != str(file)


def test_what_never_loads_is_one_line(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_machine_code", lambda source, capability: b"other")
    with pytest.raises(ResourceError, match="the device fails: CUDA_ERROR_INVALID_IMAGE"):
        CudaDevice(1).load(SOURCE)
