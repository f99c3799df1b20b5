"""No kernel reads or writes outside its buffers: vector loads take 16 to 64 bytes at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unweight_codecs.kernels import ENVIRONMENT_VARIABLE
from unweight_codecs.kernels.native import NativeKernels

SCRIPT = Path(__file__).with_name("guarded_run.py")
ROOT = SCRIPT.parents[2]

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="page protection is set through Linux calls"
)


def run(*arguments: str, kernel: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": path, ENVIRONMENT_VARIABLE: kernel},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@linux_only
def test_buffers_that_end_at_a_guard_page(native_kernel: NativeKernels) -> None:
    done = run(str(SCRIPT), native_kernel.name, kernel=native_kernel.name)
    last = done.stdout.rstrip().rpartition("\n")[2]
    assert done.returncode == 0, f"{native_kernel.name}: after {last!r}\n{done.stderr}"


@linux_only
def test_the_guard_works() -> None:
    code = "import ctypes; from tests.native.guard_pages import guarded; a = guarded(100)"
    code += "; a.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))[100]"
    assert run("-c", code, kernel="portable").returncode < 0
