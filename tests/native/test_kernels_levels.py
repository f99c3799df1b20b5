"""The kernels of the error-bounded mode stay inside their buffers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unweight_codecs.kernels import ENVIRONMENT_VARIABLE
from unweight_codecs.kernels.native import NativeKernels

SCRIPT = Path(__file__).with_name("guard_levels.py")


@pytest.mark.skipif(sys.platform != "linux", reason="page protection is set through Linux calls")
def test_buffers_that_end_at_a_guard_page(native_kernel: NativeKernels) -> None:
    path = os.pathsep.join([str(SCRIPT.parents[2]), *sys.path])
    run = subprocess.run(
        [sys.executable, str(SCRIPT), native_kernel.name],
        env=os.environ | {"PYTHONPATH": path, ENVIRONMENT_VARIABLE: native_kernel.name},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    last = run.stdout.rstrip().rpartition("\n")[2]
    assert run.returncode == 0, f"{native_kernel.name}: after {last!r}\n{run.stderr}"
