"""Turns a .cu file into a shared library of the CPU, which is kept for the next time.

The file is preprocessed by itself, so that kernels that macros make are found; two things are then
rewritten, as C++ has no way to say them: unsized arrays of shared memory become pointers, and every
kernel gets functions that launch and describe it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.gpu.simulator.errors import CompileError
from tests.gpu.simulator.library_cache import kept

_HERE: Final = Path(__file__).resolve().parent
_HEADERS: Final = sorted(_HERE.glob("*.h"))

# Arithmetic as on a GPU: nothing is fused behind the source's back, integers wrap around. The
# handlers of the checks are those of undefined.h, in place of a run-time library.
COMPILE_OPTIONS: Final = (
    *("-std=c++20", "-O1", "-g1", "-w", "-fPIC", "-fvisibility=hidden"),
    *("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"),
    "-fsanitize=alignment,shift-exponent,bounds-strict,integer-divide-by-zero",
    "-fsanitize=float-cast-overflow,return,unreachable",
)
# Options of NVRTC that mean nothing here, or what is done anyway.
_IGNORED: Final = ("--std=c++17", "-std=c++17", "--fmad=false", "-fmad=false", "-default-device")

_PARENTHESES: Final = r"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
_BOUNDS: Final = rf"(?:__launch_bounds__\s*{_PARENTHESES}\s*)?"
_KERNEL: Final = re.compile(rf'extern\s+"C"\s+__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(')
_DYNAMIC_SHARED: Final = re.compile(
    rf"extern\s+((?:__align__\s*{_PARENTHESES}\s*)?)__shared__\s+([^;\[\]]+?)\s*\b(\w+)\s*\[\s*\]\s*;"
)


def find_compiler() -> str | None:
    """Return the C++ compiler: that of the environment variable CXX, or g++; None if missing."""
    return shutil.which(os.environ.get("CXX") or "g++")


def build(source: str, name: str, options: Sequence[str], cache: Path) -> Path:
    """Compile CUDA C and return the library.

    Args:
        source: The text of a .cu file.
        name: What the compiler calls it.
        options: ``-D``, ``-U`` and ``-I`` options; those of NVRTC that are done anyway are ignored.
        cache: Where libraries are kept, by a hash of everything that they depend on.

    Raises:
        CompileError: The compiler is missing or refuses the source.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler: install g++ or set CXX")
    defines = [option for option in options if option not in _IGNORED]
    unknown = [option for option in defines if not option.startswith(("-D", "-U", "-I"))]
    if unknown:
        raise CompileError(f"options that the simulator does not know: {' '.join(unknown)}")
    preprocess = (compiler, "-E", "-x", "c++", "-std=c++20", "-w", *defines, "-")
    expanded = _run(preprocess, f'#line 1 "{name}"\n{source}')
    unit = _translation_unit(expanded)
    version = _run((compiler, "--version"), "")
    parts = (unit, version, *COMPILE_OPTIONS, *(header.read_text() for header in _HEADERS))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return kept(cache, digest, lambda: _compiled(compiler, unit))


def _translation_unit(expanded: str) -> str:
    """Return C++ for a preprocessed .cu file."""
    kernels = [
        f"CUDA_ON_CPU_KERNEL({found[3]}, {found[1] or found[2] or ''})"
        for found in _KERNEL.finditer(expanded)
    ]
    rewritten = _DYNAMIC_SHARED.sub(r"\1\3* const \4 = cuda_on_cpu::DynamicShared();", expanded)
    lines = ('#include "cuda_on_cpu.h"', rewritten, '#line 1 "kernels"', *kernels)
    return "\n".join(lines) + "\n"


def _compiled(compiler: str, unit: str) -> bytes:
    """Return the shared library of a translation unit."""
    with tempfile.TemporaryDirectory() as folder:
        made, library = Path(folder, "kernels.o"), Path(folder, "kernels.so")
        target = ("-x", "c++", "-c", "-o", str(made), "-")
        _run((compiler, *COMPILE_OPTIONS, f"-I{_HERE}", *target), unit)
        # Without the checks' options, which would ask for their run-time library.
        _run((compiler, "-shared", "-o", str(library), str(made)), "")
        return library.read_bytes()


def _run(command: Sequence[str], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(done.stderr.strip())
    return done.stdout


def source_line(library: Path, instruction: int) -> str:
    """Return ``file:line: `` of an instruction in the kernels' source; empty where unknown."""
    tool = shutil.which("addr2line")
    if tool is None or not instruction:
        return ""
    found = _run((tool, "-s", "-i", "-e", str(library), hex(instruction)), "").split("\n")
    ours = {header.name for header in _HEADERS}
    for place in found:
        file, _, line = place.split(" ")[0].partition(":")
        if line.isdecimal() and file not in ours:
            return f"{file}:{line}: "
    return ""
