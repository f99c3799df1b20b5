"""Contexts of block fields: what an earlier field of a block says about a later one.

A context is one per block and holds for all of the block's values of the predicted stream; each
context has a frequency table of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import Bytes

CONTEXTS: Final = 16
_BELOW: Final = 7  # steps of the zero point that share the first context


class Predictor(Protocol):
    """Gives every block a context."""

    def contexts(self, streams: Mapping[str, Bytes]) -> Bytes:
        """Return the context of each block, 0 to ``CONTEXTS`` - 1, from earlier streams."""
        ...


@dataclass(frozen=True, slots=True)
class ZeroPoint:
    """The quant that stands for zero, -m/d, predicts the quants: they crowd around it.

    Attributes:
        scale: Field of the scale d, an F16.
        minimum: Field of the least value m, an F16.
        levels: Quants run from 0 to ``levels`` - 1, a power of two.
    """

    scale: str
    minimum: str
    levels: int

    def contexts(self, streams: Mapping[str, Bytes]) -> Bytes:
        """Return the zero point in steps of 1/32 of the levels; the middle 16 steps are told apart.

        Blocks where d or m is not finite, or d is zero, have context 0.
        """
        halves = [streams[f"{name}.{k}"] for name in (self.scale, self.minimum) for k in (0, 1)]
        return kernels().zero_points(halves, 2 * CONTEXTS / self.levels, _BELOW, CONTEXTS)


@dataclass(frozen=True, slots=True)
class LowBits:
    """The low bits of a byte of each block: two scales of a block have near exponents.

    Attributes:
        stream: The stream of that byte.
    """

    stream: str

    def contexts(self, streams: Mapping[str, Bytes]) -> Bytes:
        """Return the lowest four bits."""
        return streams[self.stream] & np.uint8(CONTEXTS - 1)


# By block type and predicted stream. A predictor's streams come before the predicted one.
PREDICTED: Final[dict[str, dict[str, Predictor]]] = {
    "Q4_1": {"m.1": LowBits("d.1"), "q": ZeroPoint("d", "m", 16)},
    "Q5_1": {"m.1": LowBits("d.1"), "high": ZeroPoint("d", "m", 32)},
}
