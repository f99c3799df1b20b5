"""Products of a palette with few rows of activations: weights are never written to memory.

A row of activations belongs to a token, so their number is called ``tokens``.
"""

from typing import Any, Final

import numpy as np

from unweight_codecs.errors import UsageError
from unweight_gpu import kernels
from unweight_gpu.device.buffers import require_buffer
from unweight_gpu.device.interface import Array, Device
from unweight_gpu.palette.codec import ALIGNMENT, require_palette
from unweight_gpu.palette.format import Layout, Palette

MAX_TOKENS: Final = 16  # rows of activations: with more, cuBLAS is faster
OUTPUTS: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype(np.float32),
    "BF16": np.dtype(np.uint16),
}
# Threads of a thread block, by the rows of x that it takes; mirrors PALETTE_MATMUL of gemm.cu.
_THREADS: Final = {1: 512, 2: 512, 4: 256, 8: 256}
_BLOCK_ROWS: Final = 16  # of W


class PaletteProduct:
    """The kernels of ``gemm.cu``, compiled for a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._module = device.load(kernels.source("gemm"))

    def multiply(
        self, palette: Palette, x: Array, dtype: str = "F32", out: Array | None = None
    ) -> Array:
        """Return x Wᵀ, [tokens, rows] on the device.

        The weights are exact, sums are in binary32 and in an order that depends on nothing but the
        number of columns: a row of x gives the same bits beside whatever other rows and on every
        device. Infinities and NaNs, of weights and of x, come out as in any BF16 product. A row
        of W whose list of escapes is broken gives NaN.

        Args:
            palette: W, [rows, cols].
            x: BF16 words, u16 [tokens, cols] on the device; 1 to 16 rows.
            dtype: Of the result, ``F32`` or ``BF16`` (words, rounded to nearest even).
            out: Where the result goes, if given.

        Raises:
            UsageError: An array is of another type or shape, not contiguous, or not aligned to
                16 bytes.
        """
        layout = palette.layout
        require_palette(palette)
        tokens = require_activations(x, layout)
        if not 1 <= tokens <= MAX_TOKENS:
            raise UsageError(f"{tokens} rows of activations; this product takes 1 to {MAX_TOKENS}")
        out = result_array(self._device, tokens, layout, dtype, out)
        at_once = next((size for size in _THREADS if size >= tokens), max(_THREADS))
        blocks = -(-layout.rows // _BLOCK_ROWS) * -(-tokens // at_once)
        self._module.get_function(f"palette_matmul_{at_once}")(
            (blocks,),
            (_THREADS[at_once],),
            (
                *palette.arguments(),
                *(np.uint32(v) for v in (layout.rows, layout.cols, layout.stride, palette.base)),
                x,
                out,
                np.uint32(tokens),
                np.uint32(OUTPUTS[dtype].itemsize),
            ),
        )
        return out


def require_activations(x: Array, layout: Layout) -> int:
    """Return the rows of x; raises UsageError if it is not BF16 words for such a matrix."""
    if x.dtype != np.uint16 or x.ndim != 2 or x.shape[1] != layout.cols:
        given = f"{x.dtype} {tuple(x.shape)}"
        raise UsageError(f"activations are BF16 words, uint16 [tokens, {layout.cols}], not {given}")
    require_buffer(x, ALIGNMENT, "the activations")
    return int(x.shape[0])


def result_array(
    device: Device, tokens: int, layout: Layout, dtype: str, out: Array | None
) -> Array:
    """Return ``out``, or a new array for a product; raises UsageError if it is not one for it."""
    if dtype not in OUTPUTS:
        raise UsageError(f"no product in {dtype}", hint=f"one of {', '.join(OUTPUTS)}")
    shape = (tokens, layout.rows)
    if out is None:
        return device.empty(shape, OUTPUTS[dtype])
    if out.dtype != OUTPUTS[dtype] or tuple(out.shape) != shape:
        given = f"{out.dtype} {tuple(out.shape)}"
        raise UsageError(f"the result is {OUTPUTS[dtype]} {shape}, not {given}")
    require_buffer(out, ALIGNMENT, "the result")
    return out
