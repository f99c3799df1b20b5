"""What is asked of a device: CuPy answers in ``cupy_device``, in the tests a simulator does."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from numpy.typing import DTypeLike, NDArray

from unweight_codecs.kernels.operands import Bytes

Handle = Any  # an object of CuPy, which has no types
Array = Handle  # an array on a device; slices of it are arrays too


class Function(Protocol):
    """A kernel."""

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        shared_mem: int = 0,
    ) -> None:
        """Start the kernel. Arguments are arrays on the device and NumPy scalars."""
        ...


class Module(Protocol):
    """Compiled kernels."""

    def get_function(self, name: str) -> Function:
        """Return a kernel by name."""
        ...


class Queue(Protocol):
    """An order of work: copies and kernels wait for those before them, not for other queues."""

    def current(self) -> AbstractContextManager[None]:
        """Let everything that is started inside the context go to this queue."""
        ...

    def wait(self) -> None:
        """Wait until all work in the queue is done."""
        ...


class Device(Protocol):
    """What launches kernels. Its failures are ResourceErrors."""

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


class StreamingDevice(Device, Protocol):
    """A device that copies and computes while its host does something else."""

    def queue(self) -> Queue:
        """Return a new queue."""
        ...

    def pinned(self, nbytes: int) -> Bytes:
        """Return memory of the host that the device copies from and to on its own."""
        ...

    def upload(self, source: Bytes, target: Array) -> None:
        """Start copying bytes from pinned memory."""
        ...

    def download(self, source: Array, target: Bytes) -> None:
        """Start copying bytes to pinned memory."""
        ...
