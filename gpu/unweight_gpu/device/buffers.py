"""What kernels may assume of the arrays they get, checked before a launch."""

from unweight_codecs.errors import UsageError
from unweight_gpu.device.interface import Array


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
