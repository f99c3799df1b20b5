"""No kernel reads or writes outside its buffers: vector loads take 16 to 64 bytes at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unweight_codecs.kernels import ENVIRONMENT_VARIABLE
from unweight_codecs.kernels.native import NativeKernels

SCRIPT = Path(__file__).with_name("guard_pages.py")
CHECKS = (
    *("histogram", "bits", "fields", "zero_points", "words", "split16"),
    *("serialised", "rans", "decode16"),
)


@pytest.mark.skipif(sys.platform != "linux", reason="page protection is set through Linux calls")
@pytest.mark.parametrize("check", CHECKS)
def test_buffers_that_end_at_a_guard_page(native_kernel: NativeKernels, check: str) -> None:
    path = os.pathsep.join(sys.path)
    run = subprocess.run(
        [sys.executable, str(SCRIPT), native_kernel.name, check],
        env=os.environ | {"PYTHONPATH": path, ENVIRONMENT_VARIABLE: native_kernel.name},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    last = run.stdout.rstrip().rpartition("\n")[2]
    assert run.returncode == 0, f"{native_kernel.name} {check}: after {last!r}\n{run.stderr}"


@pytest.mark.skipif(sys.platform != "linux", reason="page protection is set through Linux calls")
def test_the_guard_works() -> None:
    code = "import guard_pages; a = guard_pages.guarded(100); a.ctypes.data_as(P)[100]"
    code = f"import ctypes; P = ctypes.POINTER(ctypes.c_uint8); {code}"
    path = os.pathsep.join([str(SCRIPT.parent), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert run.returncode < 0
