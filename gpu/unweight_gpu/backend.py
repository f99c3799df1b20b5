"""What kernels run on: CuPy with a device, or the simulator of the tests, behind one interface."""

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import DTypeLike, NDArray

from unweight_codecs.errors import UsageError

# An array of either: what they have of NumPy's has no common name.
DeviceArray = Any


class Kernel(Protocol):
    """A function that launches a kernel, with the arguments of CuPy's ``RawKernel``."""

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[object],
        shared_mem: int = 0,
    ) -> None:
        """Launch; ``args`` are arrays of the backend and NumPy scalars of the exact type."""
        ...


class Backend(Protocol):
    """Device memory and kernels."""

    def array(self, values: NDArray[Any]) -> DeviceArray:
        """Return a copy of ``values`` on the device."""
        ...

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> DeviceArray:
        """Return an array of the device whose values are not set."""
        ...

    def to_host(self, array: DeviceArray) -> NDArray[Any]:
        """Return a copy of a device array, complete with what was launched before."""
        ...

    def get_function(self, module: str, name: str) -> Kernel:
        """Return a kernel of a module of ``unweight_gpu.kernels``, compiled when first used."""
        ...


def address(array: DeviceArray) -> int:
    """Return where an array begins in the memory of its device."""
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return int(interface["data"][0])


def require_buffer(array: DeviceArray, alignment: int, what: str) -> None:
    """Raise UsageError unless an array is contiguous and begins at a multiple of ``alignment``."""
    if not array.flags.c_contiguous:
        raise UsageError(f"{what} must be contiguous in memory")
    if array.nbytes and address(array) % alignment:
        raise UsageError(f"{what} must begin at a multiple of {alignment} bytes")
