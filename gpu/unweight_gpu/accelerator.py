"""The CUDA accelerator: whether one can be used here. Kernels come with a later version."""

from typing import Final

INSTALL_HINT: Final = "pip install 'unweight[gpu]'"


class CudaAccelerator:
    """A CUDA device through CuPy."""

    name: Final = "cuda"

    def probe(self) -> tuple[bool, str]:
        """Return whether a device can be used, and a line that describes it or says why not.

        CuPy imports without a driver, so the device is asked for and not only the package.
        """
        try:
            import cupy
        except ImportError:
            return False, f"CuPy is not installed: {INSTALL_HINT}"
        if not cupy.cuda.is_available():
            return False, "CuPy finds no CUDA device or no driver"
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        memory = properties["totalGlobalMem"] / 1e9
        return True, f"{properties['name'].decode()}, {memory:.0f} GB, CuPy {cupy.__version__}"
