"""The tuner ``cuda``: measures products on a device, for ``unweight tune``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unweight_gpu.accelerator import CudaAccelerator
from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.device.failures import device_errors

if TYPE_CHECKING:
    from unweight_gpu.palette.tuning import TuningReport


class CudaTuner:
    """Products with palettes on CUDA devices."""

    def tune(
        self, number: int, shapes: Sequence[tuple[int, int]], batches: Sequence[int]
    ) -> "TuningReport":
        """Measure the strategies of ``palette.strategy`` for matrices, and remember the results.

        Args:
            number: The device.
            shapes: Rows and columns of the matrices.
            batches: Rows of activations.

        Raises:
            ResourceError: The device is not there or fails.
        """
        CudaAccelerator().require(number)
        from unweight_gpu.palette.cuda import tune_on

        with device_errors():
            return tune_on(shapes, batches, CudaDevice(number))
