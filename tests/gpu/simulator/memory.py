"""Global memory of the simulated device: arrays between pages that nobody may touch.

An array starts at a multiple of ``ALIGNMENT`` (or less, on request) and ends as close to a page
without access as that allows, or on request begins right behind one. The other bytes of its pages
are poisoned and compared after every launch: writes there are found, reads are not. A kernel runs
in a forked process, so the memory is shared with children.
"""

import ctypes
import math
import mmap
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

POISON: Final = 0xCD
ALIGNMENT: Final = 16  # of the widest load; that of a real device is wider
GUARD: Final = 64 << 10  # mirrored by request.h
_NO_ACCESS: Final = 0  # PROT_NONE


class Buffer(ctypes.Structure):
    """A buffer as the launcher sees it (``Buffer`` of request.h)."""

    _fields_ = (
        ("pages", ctypes.c_void_p),
        ("pages_end", ctypes.c_void_p),
        ("begin", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("argument", ctypes.c_uint32),
        ("is_read_only", ctypes.c_uint32),
    )


class GuardedMemory(mmap.mmap):
    """Pages between guards, and the range of them that belongs to an array."""

    address: int
    first: int  # offset of the first byte of the array
    nbytes: int  # of the array

    def bytes(self) -> NDArray[np.uint8]:
        """Return the accessible pages."""
        return np.frombuffer(self, np.uint8, len(self) - 2 * GUARD, GUARD)

    def describe(self, argument: int, is_read_only: bool) -> Buffer:
        """Return what the launcher needs to know; ``argument`` counts from 1, 0 is none."""
        begin = self.address + self.first
        pages_end = self.address + len(self) - GUARD
        end = begin + self.nbytes
        return Buffer(self.address + GUARD, pages_end, begin, end, argument, is_read_only)

    def is_overrun(self) -> bool:
        """Return whether a byte around the array has been written."""
        pages, first = self.bytes(), self.first - GUARD
        around = pages[:first], pages[first + self.nbytes :]
        return any(bool((part != POISON).any()) for part in around)


_live: weakref.WeakSet[GuardedMemory] = weakref.WeakSet()


def live_memory() -> list[GuardedMemory]:
    """Return all guarded memory that is in use."""
    return list(_live)


def empty(
    shape: int | tuple[int, ...], dtype: DTypeLike, alignment: int, *, at_start: bool = False
) -> NDArray[Any]:
    """Return a poisoned array; ``alignment`` is of its first byte, a power of two up to a page.

    With ``at_start`` it begins right behind memory without access, otherwise it ends before some.
    """
    extent = (shape,) if isinstance(shape, int) else shape
    count = math.prod(extent)
    size = count * np.dtype(dtype).itemsize
    room = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = GuardedMemory(-1, room + 2 * GUARD)
    memory.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory.first = GUARD + (0 if at_start else (room - size) // alignment * alignment)
    memory.nbytes = size
    memory.bytes()[:] = POISON
    for offset in (0, GUARD + room):
        _protect(memory.address + offset, GUARD)
    _live.add(memory)
    return np.frombuffer(memory, dtype, count, memory.first).reshape(extent)


def _protect(address: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), _NO_ACCESS):
        raise OSError(ctypes.get_errno(), "mprotect")


def memory_of(array: object) -> GuardedMemory | None:
    """Return the memory that an array, or a view of one, lies in, if it is guarded."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, GuardedMemory) else None
