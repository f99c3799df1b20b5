"""A CUDA device, through CuPy."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from unweight_codecs.kernels.operands import Bytes
from unweight_gpu.device.compilation import compiled
from unweight_gpu.device.failures import device_errors
from unweight_gpu.device.interface import Array, Function, Handle, Module, Queue

Current = Callable[[], AbstractContextManager[None]]  # makes a device the current one


class CudaQueue:
    """A CUDA stream."""

    def __init__(self, device: Handle, stream: Handle) -> None:
        self._device, self._stream = device, stream

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream the current one."""
        with self._device, self._stream:
            yield

    def wait(self) -> None:
        """Synchronise with the stream."""
        with device_errors():
            self._stream.synchronize()


class CudaDevice:
    """The device of a number, through CuPy, which is imported here and not before."""

    def __init__(self, number: int = 0) -> None:
        import cupy
        import cupyx

        self.number = number
        self._cupy, self._cupyx = cupy, cupyx
        self._device = cupy.cuda.Device(number)

    @property
    def description(self) -> str:
        """The names of the device and of its driver, for which measurements are valid."""
        runtime = self._cupy.cuda.runtime
        name = runtime.getDeviceProperties(self.number)["name"].decode()
        return f"{name}, driver {runtime.driverGetVersion()}"

    @contextmanager
    def _current(self) -> Iterator[None]:
        with device_errors(), self._device:
            yield

    def array(self, values: NDArray[Any]) -> Array:
        """Copy an array to the device."""
        with self._current():
            return self._cupy.asarray(values)

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array on the device whose values are not defined."""
        with self._current():
            return self._cupy.empty(shape, dtype)

    def to_host(self, values: Array) -> NDArray[Any]:
        """Copy an array from the device, after all kernels that were started before."""
        with self._current():
            return np.asarray(self._cupy.asnumpy(values))

    def load(self, source: str) -> Module:
        """Compile CUDA C, so that results are those of any CPU: see ``compilation``."""
        with self._current():
            try:
                module = self._loaded(compiled(source))
            except RuntimeError:  # of the driver: the file of an earlier run may be damaged
                module = self._loaded(compiled(source, anew=True))
        return _CudaModule(module, self._current)

    def _loaded(self, file: Path) -> Handle:
        module = self._cupy.RawModule(path=str(file))
        module.compile()  # would be done later, when no other file can be had
        return module

    def queue(self) -> Queue:
        """Return a stream that does not wait for the default one."""
        with self._current():
            return CudaQueue(self._device, self._cupy.cuda.Stream(non_blocking=True))

    def pinned(self, nbytes: int) -> Bytes:
        """Return page-locked memory."""
        with self._current():
            return np.asarray(self._cupyx.empty_pinned(nbytes, np.uint8))

    def upload(self, source: Bytes, target: Array) -> None:
        """Copy in the current stream."""
        with self._current():
            target.set(source, stream=self._cupy.cuda.get_current_stream())

    def download(self, source: Array, target: Bytes) -> None:
        """Copy in the current stream."""
        with self._current():
            stream = self._cupy.cuda.get_current_stream()
            source.get(stream=stream, out=target, blocking=False)


class _CudaModule:
    """A ``RawModule`` of a device."""

    def __init__(self, module: Handle, current: Current) -> None:
        self._module, self._current = module, current
        self._functions: dict[str, Function] = {}

    def get_function(self, name: str) -> Function:
        """Return a kernel by name; it is looked up once, which takes longer than to start it."""
        found = self._functions.get(name)
        if found is None:
            with self._current():
                kernel = self._module.get_function(name)
            found = self._functions[name] = _CudaFunction(kernel, self._current)
        return found


class _CudaFunction:
    """A ``RawKernel`` that starts on its device, whichever is the current one."""

    def __init__(self, kernel: Handle, current: Current) -> None:
        self._kernel, self._current = kernel, current

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        shared_mem: int = 0,
    ) -> None:
        """Start the kernel in the current stream."""
        with self._current():
            self._kernel(grid, block, args, shared_mem=shared_mem)
