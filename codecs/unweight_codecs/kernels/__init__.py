"""Coding kernels: C with run-time dispatch, and the NumPy reference that defines them.

``UNWEIGHT_KERNEL`` (``avx512``, ``avx2``, ``portable``, ``reference``) overrides the choice.
"""

import ctypes
import functools
import os
from dataclasses import dataclass

from unweight_codecs.errors import ResourceError, UsageError
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.native import library as compiled
from unweight_codecs.kernels.protocol import Kernels
from unweight_codecs.kernels.reference import ReferenceKernels

ENVIRONMENT_VARIABLE = "UNWEIGHT_KERNEL"
NAMES = (*compiled.INSTRUCTION_SETS, ReferenceKernels.name)


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """Whether a kernel can be used here; ``reason`` says why not."""

    name: str
    available: bool
    reason: str


@functools.cache
def _library() -> tuple[ctypes.CDLL | None, str]:
    path = compiled.find_library()
    if path is None:
        return None, "the C library was not built: no compiler at installation"
    try:
        return compiled.load_library(path), ""
    except OSError as error:
        return None, f"the C library does not load: {error}"
    except compiled.StaleLibraryError as error:
        return None, f"the C library is of another version, install again: {error}"


def kernel_status() -> tuple[KernelStatus, ...]:
    """Return every kernel, best first, and whether it can be used."""
    library, reason = _library()
    rows = []
    for name in compiled.INSTRUCTION_SETS:
        usable = library is not None and compiled.supported(library, name)
        rows.append(
            KernelStatus(name, usable, "" if usable else reason or "this processor lacks it")
        )
    return (*rows, KernelStatus(ReferenceKernels.name, available=True, reason=""))


@functools.cache
def _choose(wanted: str) -> Kernels:
    if wanted == ReferenceKernels.name:
        return ReferenceKernels()  # without a look at the library, which may be what is broken
    usable = {row.name: row for row in kernel_status()}
    if not wanted:
        wanted = next(name for name, row in usable.items() if row.available)
    if wanted not in usable:
        raise UsageError(
            f"{ENVIRONMENT_VARIABLE}={wanted}: no such kernel", hint=f"one of {', '.join(NAMES)}"
        )
    if not usable[wanted].available:
        raise ResourceError(f"{ENVIRONMENT_VARIABLE}={wanted}: {usable[wanted].reason}")
    library, _ = _library()
    if library is None:
        return ReferenceKernels()
    return NativeKernels(library, wanted)


def kernels() -> Kernels:
    """Return the kernel in use.

    Raises UsageError for an unknown override, ResourceError for one that cannot be used here.
    """
    return _choose(os.environ.get(ENVIRONMENT_VARIABLE, ""))


def active_kernel() -> str:
    """Return the name of the kernel in use; errors as for ``kernels``."""
    return kernels().name
