"""Compile the CUDA kernels for every target that is supported, without a GPU.

Prints the registers and the shared memory of every kernel. Any warning, spilled register or use of
local memory is an error. Compiles with nvcc, or where that is missing with NVRTC, which comes with
the extra ``nvrtc``; both as the kernels are compiled where they run: without fused multiply-adds.
"""

import argparse
import importlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

from unweight_gpu import kernels

TARGETS: Final = ("sm_80", "sm_90", "sm_100")
ASSEMBLER: Final = ("-v", "-warn-spills", "-warn-lmem-usage", "-Werror")

_KERNEL: Final = re.compile(r"Compiling entry function '(\w+)'")
_USAGE: Final = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
_CHATTER: Final = re.compile(r"^\s*(ptxas (info|\s+\.)|\d+ bytes stack frame|\0*$)")
_WARNING: Final = re.compile(r"\bwarning\b")

Usage = dict[str, tuple[int, int]]  # registers of a thread and shared bytes of a block, by kernel
Compile = Callable[[str, str, str], str]  # name, source and target to what the compiler says


class CompileError(Exception):
    """The compiler complains; the message is its own."""


def compile_with_nvcc(name: str, source: str, target: str) -> str:
    """Return the report of the assembler."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, f"{name}.cu")
        text.write_text(source)
        command = (
            *("nvcc", f"-arch={target}", "-cubin", "-O3", "-std=c++17", "--fmad=false"),
            *("-Werror", "all-warnings", "-Xptxas", ",".join(ASSEMBLER)),
            *("-o", str(text.with_suffix(".cubin")), str(text)),
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = done.stdout + done.stderr
    if done.returncode:
        raise CompileError(report)
    return report


def compile_with_nvrtc(name: str, source: str, target: str) -> str:
    """Return the report of the assembler."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(
        name=f"{name}.cu", arch=target, std="c++17", fma=False, ptxas_options=list(ASSEMBLER)
    )
    log = io.StringIO()
    try:
        Program(source, "c++", options).compile("cubin", logs=log)
    except Exception as error:  # its own classes, which differ between versions
        raise CompileError(str(error)) from error
    report = log.getvalue()
    if _WARNING.search(report):
        raise CompileError(report)
    return report


def compilers() -> dict[str, Compile]:
    """Return the compilers of this machine, the preferred one first."""
    found: dict[str, Compile] = {}
    if shutil.which("nvcc"):
        found["nvcc"] = compile_with_nvcc
    # Imported here already, as threads may not import it at the same time.
    with suppress(ImportError):
        importlib.import_module("cuda.core")
        found["nvrtc"] = compile_with_nvrtc
    return found


def usage_of(report: str) -> Usage:
    """Return what the assembler says about every kernel."""
    usage, kernel = Usage(), ""
    for line in report.splitlines():
        if started := _KERNEL.search(line):
            kernel = started[1]
        elif used := _USAGE.search(line):
            usage[kernel] = int(used[1]), int(used[2] or 0)
    return dict(sorted(usage.items()))


def check(compile_: Compile, job: tuple[tuple[str, str], str]) -> tuple[Usage, str]:
    """Compile a named source for a target; return the usage of its kernels and what is wrong."""
    (name, source), target = job
    try:
        return usage_of(compile_(name, source, target)), ""
    except CompileError as error:
        lines = [line for line in str(error).splitlines() if not _CHATTER.match(line)]
        return {}, "\n".join((f"{name} for {target}:", *lines))


def print_table(usages: dict[str, Usage]) -> None:
    """Print registers and shared memory, a row for a kernel and two columns for a target."""
    names = list(dict.fromkeys(name for usage in usages.values() for name in usage))
    width = max(map(len, names))
    print(" " * width, *(f"{target:>16}" for target in usages))
    print(f"{'kernel':<{width}}", *(f"{'registers shared':>16}" for _ in usages))
    for name in names:
        cells = (usage.get(name) for usage in usages.values())
        texts = (f"{cell[0]:>9} {cell[1]:>6}" if cell else f"{'-':>16}" for cell in cells)
        print(f"{name:<{width}}", *texts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile everything; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help=".cu files in place of the kernels")
    parser.add_argument("--compiler", choices=("nvcc", "nvrtc"), help="the first one that is there")
    chosen = parser.parse_args(arguments)
    available = compilers()
    name = chosen.compiler or next(iter(available), None)
    if name not in available:
        print(f"no {name or 'compiler'} here: pip install 'unweight[nvrtc]'", file=sys.stderr)
        return 1
    sources = [(path.stem, path.read_text()) for path in chosen.files] or [
        (module, kernels.source(module)) for module in kernels.names()
    ]
    jobs = list(product(sources, TARGETS))
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(partial(check, available[name]), jobs))
    usages: dict[str, Usage] = {target: {} for target in TARGETS}
    for (_, target), (usage, _) in zip(jobs, results, strict=True):
        usages[target].update(usage)
    complaints = [complaint for _, complaint in results if complaint]
    if any(usages.values()):
        print(f"Compiled by {name}: registers of a thread, shared memory of a block in bytes.\n")
        print_table(usages)
    print(*complaints, sep="\n", end="\n" * bool(complaints), file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
