"""Every kernel against the processor, before anything is measured."""

from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks.gpu.cases import FULL, Line, Sizes
from benchmarks.gpu.check_arrays import palettes, products, verification
from benchmarks.gpu.check_decoding import bounded, damage, lossless, real
from benchmarks.gpu.data import Layer
from unweight_gpu.device.interface import StreamingDevice

GROUPS: Final[dict[str, Callable[[StreamingDevice, Sizes], Line]]] = {
    "decoding": lossless,
    "decoding within an error bound": bounded,
    "palettes": palettes,
    "fused products": products,
    "verification": verification,
    "damaged chunks": damage,
}


def groups(
    device: StreamingDevice, sizes: Sizes = FULL, model: Layer | None = None
) -> list[tuple[str, Callable[[], Line]]]:
    """Return the comparisons by name, those of real weights last."""
    found: list[tuple[str, Callable[[], Line]]] = [
        (name, partial(group, device, sizes)) for name, group in GROUPS.items()
    ]
    if model is not None:
        found.append(("real weights", partial(real, device, model)))
    return found
