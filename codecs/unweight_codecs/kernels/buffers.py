"""Recycled memory for large arrays.

A fresh allocation of a megabyte comes page by page from the system, which costs as much as coding
it does. A buffer from here goes back to its shelf when the last array that views it is gone.
"""

from collections import defaultdict, deque
from typing import Any, Final

import numpy as np

from unweight_codecs.kernels.operands import Bytes

SMALL: Final = 1 << 16  # below this, malloc keeps its own
_KEPT_PER_SIZE: Final = 64  # more than are ever in use at once

# Appending to and popping from a deque is atomic, so the shelves need no lock.
_shelves: defaultdict[int, deque[Bytes]] = defaultdict(lambda: deque(maxlen=_KEPT_PER_SIZE))


class _Lease:
    """Owns a buffer for as long as an array views it. NumPy keeps it as the array's base."""

    __slots__ = ("__array_interface__", "_buffer")

    def __init__(self, buffer: Bytes, size: int) -> None:
        self._buffer = buffer
        interface: dict[str, Any] = dict(buffer.__array_interface__)
        self.__array_interface__ = interface | {"shape": (size,)}

    def __del__(self) -> None:
        if hasattr(self, "_buffer"):  # a signal may have come before there was one
            _shelves[self._buffer.size].append(self._buffer)


def empty(size: int) -> Bytes:
    """Return an array of ``size`` bytes of arbitrary content."""
    if size < SMALL:
        return np.empty(size, np.uint8)
    capacity = _capacity(size)
    try:
        buffer = _shelves[capacity].pop()
    except IndexError:
        buffer = np.empty(capacity, np.uint8)
    return np.asarray(_Lease(buffer, size))


def _capacity(size: int) -> int:
    """Round up to an eighth of a power of two, so that few sizes exist and little is wasted."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step
