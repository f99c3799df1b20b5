"""Linear layers whose weights stay on the device, as a palette, as plain BF16 words, or both."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from unweight_codecs.errors import UsageError
from unweight_gpu.device.interface import Array, Device
from unweight_gpu.palette.codec import PaletteCodec, require_words
from unweight_gpu.palette.format import Layout, Palette, Refusal
from unweight_gpu.palette.product import PaletteProduct, require_activations, result_array
from unweight_gpu.palette.strategy import Strategy, default, usable


class Blas(Protocol):
    """The library that multiplies plain matrices."""

    def matmul(self, words: Array, x: Array, out: Array) -> None:
        """Write x Wᵀ to ``out``, F32 or BF16 words; W [rows, cols] and x [batch, cols] are BF16."""
        ...


class Chooser(Protocol):
    """Knows which strategy is the fastest."""

    def best(self, layout: Layout, batch: int, held: frozenset[Strategy]) -> Strategy:
        """Return the choice among the strategies that a matrix is held for."""
        ...


class Defaults:
    """The static table of ``strategy.py``."""

    def best(self, layout: Layout, batch: int, held: frozenset[Strategy]) -> Strategy:
        """Look the product up in the table."""
        return default(layout, batch, held)


class LinearBackend:
    """The compiled kernels of a device, its BLAS, and what chooses between them."""

    def __init__(self, device: Device, blas: Blas, chooser: Chooser | None = None) -> None:
        self.device = device
        self.blas = blas
        self.chooser: Chooser = chooser or Defaults()
        self.codec = PaletteCodec(device)
        self.product = PaletteProduct(device)
        self._scratch: Array | None = None

    def linear(
        self, words: Array, base: int | None = None, *, keep_words: bool = False
    ) -> "PaletteLinear":
        """Return a layer with the weights u16 [rows, cols], BF16 words on the device.

        ``keep_words`` holds them beside the palette, for products that are faster so. They are
        also kept if a palette does not pay, and ``reason`` of the layer says why. Raises
        UsageError as ``PaletteCodec.encode``.
        """
        layout = require_words(words)
        found = self.codec.encode(words, base)
        if isinstance(found, Refusal):
            return PaletteLinear(self, layout, words=words, reason=found.reason)
        return PaletteLinear(self, layout, found, words if keep_words else None)

    def scratch(self, layout: Layout) -> Array:
        """Return memory for an expanded matrix; every product that asks gets the same.

        Products of one stream follow each other, so one is done with it before the next begins.
        """
        size = layout.rows * layout.cols
        if self._scratch is None or self._scratch.size < size:
            self._scratch = None  # frees the smaller one before
            self._scratch = self.device.empty(size, np.uint16)
        return self._scratch[:size].reshape(layout.rows, layout.cols)


@dataclass(frozen=True, slots=True, eq=False)
class PaletteLinear:
    """The weights of a layer, and products with them.

    Attributes:
        backend: Of the device that the weights are on.
        layout: The extent of the matrix.
        palette: The weights as a palette.
        words: The weights as BF16 words, u16 [rows, cols].
        reason: Why there is no palette.
    """

    backend: LinearBackend
    layout: Layout
    palette: Palette | None = None
    words: Array | None = None
    reason: str = ""
    held: frozenset[Strategy] = field(init=False)

    def __post_init__(self) -> None:
        held = {Strategy.FUSED, Strategy.EXPANDED} if self.palette else set()
        if self.words is not None:
            held.add(Strategy.BF16)
        if not held:
            raise UsageError("a linear layer needs weights: a palette or plain words")
        object.__setattr__(self, "held", frozenset(held))

    @property
    def nbytes(self) -> int:
        """Device memory that the weights take."""
        palette = self.palette.nbytes if self.palette else 0
        return palette + (self.words.nbytes if self.words is not None else 0)

    def matmul(
        self,
        x: Array,
        dtype: str = "F32",
        *,
        strategy: Strategy | None = None,
        out: Array | None = None,
    ) -> Array:
        """Return x Wᵀ, [batch, rows] on the device.

        Args:
            x: BF16 words, u16 [batch, cols] on the device.
            dtype: Of the result, ``F32`` or ``BF16``.
            strategy: How; the backend's choice if None.
            out: Where the result goes, if given.

        Raises:
            UsageError: An array does not fit, or the layer is not held for the strategy.
        """
        batch = require_activations(x, self.layout)
        out = result_array(self.backend.device, batch, self.layout, dtype, out)
        if not batch:
            return out
        if strategy is None:
            strategy = self.backend.chooser.best(self.layout, batch, self.held)
        elif strategy not in usable(batch, self.held):
            names = ", ".join(usable(batch, self.held))
            raise UsageError(f"no {strategy} product of {batch} rows here", hint=f"one of {names}")
        if strategy is Strategy.FUSED and self.palette:
            return self.backend.product.multiply(self.palette, x, dtype, out)
        words = self.words
        if strategy is Strategy.EXPANDED and self.palette:
            words = self.backend.codec.expand(self.palette, self.backend.scratch(self.layout))
        self.backend.blas.matmul(words, x, out)
        return out
