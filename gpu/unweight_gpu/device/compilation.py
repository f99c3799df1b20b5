"""CUDA C to machine code, by the NVRTC that CuPy brings.

``cupy.RawModule`` would compile, too, but with ``-ftz=true``, which it leaves no way to take back:
products, sums and conversions of subnormal numbers would be zero, and results not those of a CPU.
"""

import hashlib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from unweight_codecs.errors import ResourceError
from unweight_gpu.device.cache import cache_folder, replace_file
from unweight_gpu.device.failures import ON_PROCESSOR

# Products and sums are not fused either, unless a kernel says so.
OPTIONS: Final = ("-std=c++17", "--fmad=false")


def compiled(source: str, *, anew: bool = False) -> Path:
    """Return a file with the machine code of a source for CuPy's current device.

    It is kept in the cache of the user, since compiling takes seconds; where that cannot be
    written, until this process ends. ``anew`` replaces a file that cannot be loaded. Raises
    ResourceError for a device that NVRTC does not compile for.
    """
    import cupy

    compute_capability = cupy.cuda.Device().compute_capability
    version = cupy.cuda.nvrtc.getVersion()
    key = repr((source, OPTIONS, compute_capability, version))
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.cubin"
    file = cache_folder() / "kernels" / name
    if file.is_file() and not anew:
        return file
    code = _machine_code(source, compute_capability)
    try:
        replace_file(file, code)
    except OSError:
        file = Path(_own_folder().name) / name
        replace_file(file, code)
    return file


@cache
def _machine_code(source: str, compute_capability: str) -> bytes:
    from cupy.cuda import compiler

    compile_error: Any = compiler.CompileException
    try:
        code, _ = compiler.compile_using_nvrtc(source, OPTIONS)
    except compile_error as error:
        line = next(iter(str(error).strip().splitlines()), "")[:160]
        raise ResourceError(
            f"the kernels do not compile for compute capability {compute_capability}: {line}",
            hint=ON_PROCESSOR,
        ) from error
    return bytes(code)


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that lasts as long as this process."""
    return tempfile.TemporaryDirectory(prefix="unweight-kernels-")
