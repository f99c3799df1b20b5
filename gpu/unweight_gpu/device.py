"""A CUDA device, through CuPy."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = Any  # an array on a device; slices of it are arrays too


class Function(Protocol):
    """A kernel."""

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        """Start the kernel. Arguments are arrays on the device and NumPy scalars."""
        ...


class Module(Protocol):
    """Compiled kernels."""

    def get_function(self, name: str) -> Function:
        """Return a kernel by name."""
        ...


class Device(Protocol):
    """What the kernels' hosts need of a device: CuPy has it, and so has the simulator of the tests."""

    def array(self, values: NDArray[Any]) -> Array:
        """Copy an array to the device."""
        ...

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array on the device whose values are not defined."""
        ...

    def to_host(self, values: Array) -> NDArray[Any]:
        """Copy an array from the device, after all kernels that were started before."""
        ...

    def load(self, source: str) -> Module:
        """Compile CUDA C."""
        ...


class CudaDevice:
    """The device of a number, through CuPy, which is imported here and not before."""

    def __init__(self, number: int = 0) -> None:
        import cupy

        self.number = number
        self._cupy = cupy
        self._device = cupy.cuda.Device(number)

    def array(self, values: NDArray[Any]) -> Array:
        """Copy an array to the device."""
        with self._device:
            return self._cupy.asarray(values)

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array on the device whose values are not defined."""
        with self._device:
            return self._cupy.empty(shape, dtype)

    def to_host(self, values: Array) -> NDArray[Any]:
        """Copy an array from the device, after all kernels that were started before."""
        with self._device:
            return np.asarray(self._cupy.asnumpy(values))

    def load(self, source: str) -> Module:
        """Compile CUDA C. Products and sums are not fused, so that results are those of any CPU."""
        with self._device:
            return self._cupy.RawModule(code=source, options=("-std=c++17", "--fmad=false"))
