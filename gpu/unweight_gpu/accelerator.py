"""The accelerator ``cuda``: whether a device can be used here, and an engine on it."""

from collections.abc import Callable
from typing import Final

from unweight_codecs.accelerators import Engine
from unweight_codecs.errors import ResourceError
from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.device.failures import device_errors, line_of

INSTALL_HINT: Final = "pip install 'unweight[gpu]'"


class CudaAccelerator:
    """CUDA devices, through CuPy."""

    name: Final = "cuda"

    def probe(self, number: int = 0) -> tuple[bool, str]:
        """Return whether a device can be used, and a line that describes it or says why not.

        CuPy imports without a driver, so the device is asked for and not only the package.
        """
        try:
            return _described(number)
        except Exception as error:  # whatever a broken installation or driver raises
            if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
                return False, f"CuPy is not installed: {INSTALL_HINT}"
            return False, f"CuPy fails: {line_of(error)}"

    def require(self, number: int) -> str:
        """Return the line that describes a device; raises ResourceError if it cannot be used."""
        usable, detail = self.probe(number)
        if not usable:
            raise ResourceError(f"no CUDA device: {detail}", hint="see unweight doctor")
        return detail

    def open(self, number: int, threads: int, note: Callable[[str], None] | None) -> Engine:
        """Return an engine; see ``Accelerator``. One thread of the host is enough to feed it."""
        self.require(number)
        from unweight_gpu.decoding.engine import CudaEngine

        with device_errors():
            return CudaEngine(CudaDevice(number), f"{self.name}:{number}", note)


def _described(number: int) -> tuple[bool, str]:
    import cupy

    if not cupy.cuda.is_available():
        return False, "CuPy finds no CUDA device or no driver"
    runtime = cupy.cuda.runtime
    count = runtime.getDeviceCount()
    if number >= count:
        return False, f"there is no device {number}, only {count}"
    with cupy.cuda.Device(number):
        free, total = runtime.memGetInfo()
    name = runtime.getDeviceProperties(number)["name"].decode()
    driver = runtime.driverGetVersion()
    return True, (
        f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free, "
        f"driver for CUDA {driver // 1000}.{driver % 1000 // 10}, CuPy {cupy.__version__}"
    )
