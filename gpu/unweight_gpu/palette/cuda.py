"""What the palette needs of CUDA beyond kernels: cuBLAS, events, and the name of the device."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from unweight_gpu import kernels
from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.device.interface import Array
from unweight_gpu.device.timing import Run
from unweight_gpu.palette.linear import LinearBackend
from unweight_gpu.palette.measurements import MeasuredChooser, Measurements, cache_file
from unweight_gpu.palette.tuning import TuningReport, tune

_REPEATS: Final = 7
_MOST_QUEUED: Final = 64  # runs between two events; a device queues about a thousand launches
_SLACK: Final = 4  # how much longer the device is kept busy than the host needs to queue up runs


class CudaBlas:
    """cuBLAS, with sums in binary32."""

    def __init__(self, device: CudaDevice) -> None:
        import cupy

        self._cupy: Any = cupy
        self._device: Any = cupy.cuda.Device(device.number)
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)

    def matmul(self, words: Array, x: Array, out: Array) -> None:
        """Write x Wᵀ to ``out``, F32 or BF16 words; W [rows, cols] and x [batch, cols] are BF16.

        cuBLAS reads arrays by columns, for which W is its own transpose and the result comes out
        by rows.
        """
        cublas, runtime = self._cupy.cuda.cublas, self._cupy.cuda.runtime
        (rows, cols), batch = words.shape, x.shape[0]
        bf16 = runtime.CUDA_R_16BF
        with self._device:
            cublas.gemmEx(
                self._cupy.cuda.device.get_cublas_handle(),
                cublas.CUBLAS_OP_T,
                cublas.CUBLAS_OP_N,
                rows,
                batch,
                cols,
                self._one.ctypes.data,
                words.data.ptr,
                bf16,
                cols,
                x.data.ptr,
                bf16,
                cols,
                self._zero.ctypes.data,
                out.data.ptr,
                bf16 if out.dtype.itemsize == 2 else runtime.CUDA_R_32F,
                rows,
                cublas.CUBLAS_COMPUTE_32F,
                cublas.CUBLAS_GEMM_DEFAULT,
            )


class EventTimer:
    """Times work by CUDA events.

    A run may take the host longer to start than the device to do. So the device idles first, in a
    kernel, until all runs are queued, and then does them one right after the other.
    """

    def __init__(self, device: CudaDevice) -> None:
        import cupy

        self._cupy: Any = cupy
        self._device: Any = cupy.cuda.Device(device.number)
        self._idle = device.load(kernels.source("idle")).get_function("idle")

    def samples(self, runs: Sequence[Run]) -> list[float]:
        """Return the time of a run, several times: each is the mean of a queue of them.

        The first pass over the runs warms up and is not counted.
        """
        queued = [runs[i % len(runs)] for i in range(max(len(runs), _MOST_QUEUED))]
        with self._device:
            for run in runs:
                run()
            self._device.synchronize()
            begin = time.perf_counter()
            for run in queued:
                run()
            microseconds = int((time.perf_counter() - begin) * 1e6 * _SLACK)
            self._device.synchronize()
            return [self._once(queued, microseconds) for _ in range(_REPEATS)]

    def _once(self, queued: Sequence[Run], microseconds: int) -> float:
        start, stop = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        self._idle((1,), (1,), (np.uint32(microseconds),))
        start.record()
        for run in queued:
            run()
        stop.record()
        stop.synchronize()
        milliseconds: float = self._cupy.cuda.get_elapsed_time(start, stop)
        return milliseconds / 1e3 / len(queued)


def name_of(device: CudaDevice) -> str:
    """Return the name of a device and of its driver, which measurements are valid for."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(device.number)
    driver = cupy.cuda.runtime.driverGetVersion()
    return f"{properties['name'].decode()}, driver {driver}"


def linear_backend(device: CudaDevice) -> LinearBackend:
    """Return what layers on a device multiply with, chosen by what this user has measured."""
    chooser = MeasuredChooser(name_of(device), Measurements.load(cache_file()))
    return LinearBackend(device, CudaBlas(device), chooser)


def tune_on(
    shapes: Iterable[tuple[int, int]], batches: Iterable[int], device: CudaDevice
) -> TuningReport:
    """Measure the strategies on a device and keep the results for this user; see ``tune``."""
    backend = LinearBackend(device, CudaBlas(device))
    return tune(shapes, batches, backend, EventTimer(device), name_of(device), cache_file())
