"""Where kernels that decode chunks leave the palettes that they make."""

from collections.abc import Mapping
from dataclasses import dataclass

from unweight_gpu.device.interface import Array
from unweight_gpu.palette.format import Layout, Palette


@dataclass(frozen=True, slots=True)
class PalettePlaces:
    """Where the arrays of a palette come out; see ``palette.format``.

    Attributes:
        layout: The extent of the matrix, whose rows need no padding.
        base: First exponent of the window.
        number: Of escapes.
        offsets: Of every array, by name, in the buffer of results.
    """

    layout: Layout
    base: int
    number: int
    offsets: Mapping[str, int]

    def palette(self, out: Array) -> Palette:
        """Return the palette in a buffer of results; its arrays are views of it."""
        arrays = {}
        for name, (size, dtype) in self.layout.arrays(self.number).items():
            at = self.offsets[name]
            arrays[name] = out[at : at + size * dtype.itemsize].view(dtype)
        return Palette(self.layout, self.base, **arrays)
