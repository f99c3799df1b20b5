"""Buffers of a device: where things go in one, and what kernels may assume of arrays."""

from dataclasses import dataclass
from typing import Final

from unweight_codecs.errors import UsageError
from unweight_gpu.device.interface import Array

BUFFER_ALIGNMENT: Final = 256  # of what begins in a buffer, as of device memory itself


@dataclass(slots=True)
class BufferPlan:
    """Places things in a buffer one after the other, each at a multiple of ``BUFFER_ALIGNMENT``.

    Attributes:
        nbytes: Size of the buffer so far.
    """

    nbytes: int = 0

    def add(self, nbytes: int) -> int:
        """Return the offset of ``nbytes`` more bytes."""
        offset = self.nbytes
        self.nbytes += -(-nbytes // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT
        return offset


def address(array: Array) -> int:
    """Return where an array begins in the memory of its device."""
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return int(interface["data"][0])


def require_buffer(array: Array, alignment: int, what: str) -> None:
    """Raise UsageError unless an array is contiguous and begins at a multiple of ``alignment``."""
    if not array.flags.c_contiguous:
        raise UsageError(f"{what} must be contiguous in memory")
    if array.nbytes and address(array) % alignment:
        raise UsageError(f"{what} must begin at a multiple of {alignment} bytes")
