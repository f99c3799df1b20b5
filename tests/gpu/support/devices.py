"""Where kernels run in tests: the simulator, or a CUDA device through CuPy. Both are used alike."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tests.gpu.simulator import compiler, memory
from tests.gpu.simulator.module import Limits, Module
from unweight_gpu.accelerator import CudaAccelerator
from unweight_gpu.device.compilation import compiled

Handle = Any  # an object of CuPy, which has no types
Array = Handle  # an array on a device: in the simulator a NumPy array in guarded memory


@cache
def why_no_device() -> str:
    """Return why tests cannot run on a CUDA device, "" if they can."""
    usable, detail = CudaAccelerator().probe()
    return "" if usable else detail


class Function(Protocol):
    """A kernel, called as CuPy's ``RawKernel``; arguments are arrays of the device or scalars."""

    max_dynamic_shared_size_bytes: int

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[object],
        shared_mem: int = 0,
    ) -> None:
        """Launch the kernel."""


class Compiled(Protocol):
    """A module of kernels."""

    def get_function(self, name: str) -> Function:
        """Return the kernel of a name."""


class Device(Protocol):
    """What a test needs of a device."""

    name: str

    def load(self, source: str | Path, *, seed: int = 0, options: Sequence[str] = ()) -> Compiled:
        """Compile CUDA C: a path, or the text itself. The seed is of the simulator's schedule."""

    def array(
        self, values: NDArray[Any], *, alignment: int = memory.ALIGNMENT, at_start: bool = False
    ) -> Array:
        """Copy an array to the device."""

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        *,
        alignment: int = memory.ALIGNMENT,
        at_start: bool = False,
    ) -> Array:
        """Allocate an array; what it holds is undefined, in the simulator bytes of 0xCD."""

    def address(self, array: Array) -> int:
        """Return the address of an array, for structures that hold it."""

    def to_host(self, array: Array) -> NDArray[Any]:
        """Copy an array from the device."""


class Simulator:
    """The CPU: kernels are compiled by g++ and every misstep is an error.

    The alignment of an array is that of its first byte. It ends where accessible memory does: up to
    ``alignment - 1`` bytes beyond are only checked for writes, so take less than 16 where a kernel
    must not read them. With ``at_start`` it begins behind memory that must not be touched instead.
    """

    name = "simulator"

    def __init__(self, cache: Path, limits: Limits | None = None) -> None:
        self.cache = cache
        self._libraries: dict[tuple[str, ...], Path] = {}
        self._limits = limits or Limits()

    def load(self, source: str | Path, *, seed: int = 0, options: Sequence[str] = ()) -> Module:
        """Compile CUDA C, or take the library of an earlier time."""
        name = source.name if isinstance(source, Path) else "kernel.cu"
        text = source.read_text() if isinstance(source, Path) else source
        key = (name, text, *options)
        if key not in self._libraries:
            self._libraries[key] = compiler.build(text, name, options, self.cache)
        return Module(self._libraries[key], seed, self._limits)

    def array(
        self, values: NDArray[Any], *, alignment: int = memory.ALIGNMENT, at_start: bool = False
    ) -> NDArray[Any]:
        """Copy an array into guarded memory."""
        copy = memory.empty(values.shape, values.dtype, alignment, at_start=at_start)
        copy[...] = values
        return copy

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        *,
        alignment: int = memory.ALIGNMENT,
        at_start: bool = False,
    ) -> NDArray[Any]:
        """Allocate a poisoned array in guarded memory."""
        return memory.empty(shape, dtype, alignment, at_start=at_start)

    def address(self, array: NDArray[Any]) -> int:
        """Return the address of an array."""
        return array.ctypes.data

    def to_host(self, array: NDArray[Any]) -> NDArray[Any]:
        """Copy an array."""
        return array.copy()


class CupyDevice:
    """The current CUDA device."""

    name = "cupy"

    def __init__(self) -> None:
        import cupy

        self._cupy: Handle = cupy

    def load(self, source: str | Path, *, seed: int = 0, options: Sequence[str] = ()) -> Handle:
        """Compile CUDA C as the package does; the options are for the simulator."""
        text = source.read_text() if isinstance(source, Path) else source
        return self._cupy.RawModule(path=str(compiled(text)))

    def array(
        self, values: NDArray[Any], *, alignment: int = memory.ALIGNMENT, at_start: bool = False
    ) -> Array:
        """Copy an array to the device."""
        return self._cupy.asarray(values)

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        *,
        alignment: int = memory.ALIGNMENT,
        at_start: bool = False,
    ) -> Array:
        """Allocate an array on the device, filled as in the simulator."""
        dtype = np.dtype(dtype)
        extent = (shape,) if isinstance(shape, int) else shape
        array = self._cupy.empty(extent, dtype)
        self._cupy.cuda.runtime.memset(array.data.ptr, memory.POISON, array.nbytes)
        return array

    def address(self, array: Array) -> int:
        """Return the address of an array."""
        return int(array.data.ptr)

    def to_host(self, array: Array) -> NDArray[Any]:
        """Copy an array from the device, after all launches."""
        host: NDArray[Any] = self._cupy.asnumpy(array)
        return host
