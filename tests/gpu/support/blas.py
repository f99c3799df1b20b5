"""What multiplies plain matrices in tests: the BLAS of a device, or NumPy beside the simulator."""

import numpy as np

from tests.gpu.support.devices import Device
from tests.gpu.support.palette_model import narrowed, widened
from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.device.interface import Array
from unweight_gpu.palette.cuda import CudaBlas
from unweight_gpu.palette.linear import Blas


class NumpyBlas:
    """Products in binary64, rounded once."""

    def matmul(self, words: Array, x: Array, out: Array) -> None:
        with np.errstate(invalid="ignore"):
            exact = widened(x).astype(np.float64) @ widened(words).astype(np.float64).T
        out[...] = narrowed(exact) if out.dtype == np.uint16 else exact


def blas_of(device: Device) -> Blas:
    """Return what multiplies the arrays of a device."""
    return NumpyBlas() if device.name == "simulator" else CudaBlas(CudaDevice())
