"""A device whose kernels run in the order of a seed, for code that loads its modules itself."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import DTypeLike, NDArray

from tests.gpu.support.devices import Compiled, Device
from unweight_gpu.device.interface import Array

SEEDS = (0, 1, 0x5EED)


@dataclass(frozen=True, slots=True)
class Seeded:
    """``device`` with a seed for all that it loads; a real device has an order of its own.

    Arrays begin at multiples of ``alignment``: the smaller it is, the closer they end to memory
    that must not be touched. With an odd seed they begin behind such memory instead.
    """

    device: Device
    seed: int = 0
    alignment: int = 16

    @property
    def _at_start(self) -> bool:
        return self.seed % 2 == 1

    def array(self, values: NDArray[Any]) -> Array:
        """Copy an array to the device."""
        return self.device.array(values, alignment=self.alignment, at_start=self._at_start)

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Allocate an array on the device."""
        return self.device.empty(shape, dtype, alignment=self.alignment, at_start=self._at_start)

    def to_host(self, values: Array) -> NDArray[Any]:
        """Copy an array from the device."""
        return self.device.to_host(values)

    def load(self, source: str) -> Compiled:
        """Compile CUDA C."""
        return self.device.load(source, seed=self.seed)
