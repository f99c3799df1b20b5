"""Palettes on a CUDA device: products through cuBLAS, and backends with what was measured there."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.device.interface import Array
from unweight_gpu.device.timing import EventTimer
from unweight_gpu.palette.linear import LinearBackend
from unweight_gpu.palette.measurements import MeasuredChooser, Measurements, cache_file
from unweight_gpu.palette.tuning import TuningReport, tune


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


def linear_backend(device: CudaDevice) -> LinearBackend:
    """Return what layers on a device multiply with, chosen by what this user has measured."""
    chooser = MeasuredChooser(device.description, Measurements.load(cache_file()))
    return LinearBackend(device, CudaBlas(device), chooser)


def tune_on(
    shapes: Iterable[tuple[int, int]], batches: Iterable[int], device: CudaDevice
) -> TuningReport:
    """Measure the strategies on a device and keep the results for this user; see ``tune``."""
    backend = LinearBackend(device, CudaBlas(device))
    return tune(shapes, batches, backend, EventTimer(device), device.description, cache_file())
