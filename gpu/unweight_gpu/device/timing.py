"""How long work takes on a device, with no cache helping it."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from unweight_gpu import kernels
from unweight_gpu.device.cupy_device import CudaDevice

_COLD_BYTES: Final = 256 << 20  # between two uses of the same bytes: beyond any cache
_MAX_COPIES: Final = 16
_REPEATS: Final = 7
_MAX_QUEUED: Final = 64  # works between two events; a device queues about a thousand launches
_SLACK: Final = 4  # how much longer the device is kept busy than the host needs to queue up works

Work = Callable[[], object]


class Timer(Protocol):
    """Measures work on a device."""

    def samples(self, works: Sequence[Work]) -> Sequence[float]:
        """Return the seconds that one of the works takes, several times; they take turns."""
        ...


def copies_of(nbytes: int) -> int:
    """Return how many copies of so many bytes must take turns so that no cache holds one."""
    return max(1, min(_MAX_COPIES, -(-_COLD_BYTES // max(1, nbytes))))


class EventTimer:
    """Times work by CUDA events.

    Work may take the host longer to start than the device to do. So the device idles first, in a
    kernel, until all works are queued, and then does them one right after the other.
    """

    def __init__(self, device: CudaDevice) -> None:
        import cupy

        self._cupy: Any = cupy
        self._device: Any = cupy.cuda.Device(device.number)
        self._idle = device.load(kernels.source("idle")).get_function("idle")

    def samples(self, works: Sequence[Work]) -> list[float]:
        """Return the seconds of one of the works, several times, each the mean of a queue of them.

        The first pass over the works warms up and is not counted.
        """
        queued = [works[i % len(works)] for i in range(max(len(works), _MAX_QUEUED))]
        with self._device:
            for work in works:
                work()
            self._device.synchronize()
            begin = time.perf_counter()
            for work in queued:
                work()
            microseconds = int((time.perf_counter() - begin) * 1e6 * _SLACK)
            self._device.synchronize()
            return [self._once(queued, microseconds) for _ in range(_REPEATS)]

    def _once(self, queued: Sequence[Work], microseconds: int) -> float:
        start, stop = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        self._idle((1,), (1,), (np.uint32(microseconds),))
        start.record()
        for work in queued:
            work()
        stop.record()
        stop.synchronize()
        milliseconds: float = self._cupy.cuda.get_elapsed_time(start, stop)
        return milliseconds / 1e3 / len(queued)
