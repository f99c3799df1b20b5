"""What all parts of the binding share: the library, the kernel, and what statuses mean."""

import ctypes
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError, UnweightError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.reference import ReferenceKernels

# Statuses of src/unweight.h.
DAMAGED: Final = -1
DECLINED: Final = -2
NO_FREQUENCY: Final = -3
NO_ROOM: Final = -4
UNSUPPORTED: Final = -5
CUT_SHORT: Final = -6
WRONG_SUM: Final = -7


class Binding(ReferenceKernels):
    """Kernels of one instruction set of a library."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._library, self.name = library, name
        self._kernel = library.uw_find_kernel(name.encode())
        if not self._kernel:
            raise UnweightError(f"this processor does not run the {name} kernels")


def checked(status: int, damaged: str = "a coded chunk is damaged") -> int:
    """Return a result that is not negative; raise what a status means.

    IntegrityError, with the text ``damaged``, is for damaged input alone: memory that is short or a
    wrong argument says nothing about a file.
    """
    if status >= 0:
        return status
    if status == DAMAGED:
        raise IntegrityError(damaged)
    if status == CUT_SHORT:
        raise IntegrityError("a frequency table is cut short")
    if status == WRONG_SUM:
        raise IntegrityError("a frequency table does not sum to 4096")
    if status == NO_FREQUENCY:
        raise UnweightError("a symbol to encode has no frequency")
    if status == NO_ROOM:
        raise MemoryError("a kernel was given too little scratch memory")
    raise UnweightError(f"a kernel does not take its arguments (status {status})")


def room_for(tables: int, words: int) -> NDArray[np.uint32]:
    """Return scratch memory of ``words`` 32-bit words for each of so many tables."""
    return buffers.empty(4 * tables * words).view(np.uint32)
