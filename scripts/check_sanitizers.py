"""Builds the C kernels with AddressSanitizer and UBSan, and runs their tests on that library.

What the sanitizers find ends the tests, with the place in the C sources. Words after the script's
name go to pytest.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g -O1"
TESTS = (
    "tests/native",
    "tests/unit/unweight_codecs/payload/test_hostile_chunks.py",
    "tests/unit/unweight_codecs/payload/test_hostile_levels.py",
)
# Guard pages need no sanitizer. A report would be lost with the process that it ends if pytest
# captured it.
OPTIONS = ("-q", "-x", "-s", "--ignore", "tests/native/test_kernels_bounds.py", "-m", "not slow")


def main() -> int:
    """Return pytest's exit status."""
    sys.path.insert(0, str(ROOT))
    build = importlib.import_module("hatch_build")
    sources = ROOT / build.SOURCE_ROOT / build.KERNELS / "src"
    with tempfile.TemporaryDirectory(prefix="unweight-sanitizers-") as folder:
        library = Path(folder, build.LIBRARY)
        build.compile_library(sources, library, os.environ | {"UNWEIGHT_CFLAGS": FLAGS})
        environment = os.environ | {
            # Python was not built with the sanitizer, which has to be loaded first. What Python
            # itself never frees is no leak of the kernels.
            "LD_PRELOAD": runtime(build.find_compiler(os.environ), "libasan.so"),
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "UNWEIGHT_NATIVE_LIBRARY": str(library),
        }
        command = [sys.executable, "-m", "pytest", *OPTIONS, *TESTS, *sys.argv[1:]]
        return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def runtime(compiler: list[str], name: str) -> str:
    """Return where the compiler's runtime library of a name lies."""
    said = subprocess.run(
        [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    if not Path(path := said.stdout.strip()).is_absolute():
        raise SystemExit(f"{compiler[0]} has no {name}; gcc has it")
    return path


if __name__ == "__main__":
    sys.exit(main())
