"""BF16 matrices to palettes and back on a device, without a detour through host memory."""

from typing import Final

import numpy as np

from unweight_codecs.errors import IntegrityError, UsageError
from unweight_gpu import kernels
from unweight_gpu.checking.comparison import Verifier
from unweight_gpu.device.buffers import require_buffer
from unweight_gpu.device.interface import Array, Device
from unweight_gpu.palette.format import (
    EXPONENTS,
    MAX_ESCAPES,
    Layout,
    Palette,
    Refusal,
    best_base,
    check_base,
    refusal,
)

ALIGNMENT: Final = 16
_ROW_THREADS: Final = 128  # mirrors ROW_THREADS of kernels/palette.cu
_ROW_WARPS: Final = _ROW_THREADS // 32
STATUSES: Final = (
    "sound",
    "its escapes do not begin where those of the row before end",
    "an escape lies beyond the last column",
    "its escapes are not in the order of columns",
    "the planes hold a weight where there is an escape",
)


class PaletteCodec:
    """The kernels of ``palette.cu``, compiled for a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._module = device.load(kernels.source("palette"))
        self._verifier = Verifier(device)

    def encode(
        self, words: Array, base: int | None = None, max_escapes: float = MAX_ESCAPES
    ) -> Palette | Refusal:
        """Return the palette of BF16 words, or why there is none.

        Args:
            words: u16 [rows, cols] on the device.
            base: First exponent of the window; that of the window with the most weights if None.
            max_escapes: The largest share of weights outside of it.

        Raises:
            UsageError: The array is of another type or shape, empty, not contiguous or not aligned
                to 16 bytes, or no palette can have this base.
        """
        layout = require_words(words)
        if refused := refusal(layout, 0):
            return refused
        if base is None:
            base = best_base(self._verifier.histogram(words, 7, EXPONENTS.bit_length() - 1))
        check_base(base)
        device = self._device
        planes = layout.arrays(0)
        sm, nibbles = device.empty(*planes["sm"]), device.empty(*planes["nibbles"])
        counts = device.empty(layout.rows, np.uint32)
        extent = tuple(
            np.uint32(value) for value in (layout.rows, layout.cols, layout.stride, base)
        )
        self._module.get_function("palette_planes")(
            (layout.rows,), (_ROW_THREADS,), (words, sm, nibbles, counts, *extent)
        )
        sums = np.concatenate([[0], np.cumsum(device.to_host(counts), dtype=np.int64)])
        number = int(sums[-1])
        if refused := refusal(layout, number, max_escapes):
            return refused
        row_ptr = device.array(sums.astype(np.uint32))
        escapes = device.empty(*layout.arrays(number)["escapes"])
        status = device.empty(layout.rows, np.uint32)
        rows, cols, _, first = extent
        self._module.get_function("palette_escapes")(
            (-(-layout.rows // _ROW_WARPS),),
            (_ROW_THREADS,),
            (words, row_ptr, escapes, np.uint32(number), status, rows, cols, first),
        )
        self._raise_for(status)
        return Palette(layout, base, sm, nibbles, row_ptr, escapes)

    def expand(self, palette: Palette, out: Array | None = None) -> Array:
        """Return the BF16 words of a palette, u16 [rows, cols] on the device.

        They go to ``out`` if given. Nothing waits for the device: what is broken in the list of
        escapes is left out, and ``check`` tells of it. Raises UsageError for arrays that do not
        fit.
        """
        layout = palette.layout
        require_palette(palette)
        if out is None:
            out = self._device.empty((layout.rows, layout.cols), np.uint16)
        if require_words(out) != layout:
            raise UsageError(f"the output is {tuple(out.shape)}, the palette {layout}")
        self._module.get_function("palette_expand")(
            (layout.rows,),
            (_ROW_THREADS,),
            (
                *palette.arguments(),
                out,
                *(np.uint32(v) for v in (layout.rows, layout.cols, layout.stride, palette.base)),
            ),
        )
        return out

    def check(self, palette: Palette) -> None:
        """Raise IntegrityError for the first row whose list of escapes is broken.

        Kernels never leave their buffers, whatever a palette holds; they need no check before.
        """
        layout = palette.layout
        require_palette(palette)
        status = self._device.empty(layout.rows, np.uint32)
        self._module.get_function("palette_check")(
            (-(-layout.rows // _ROW_WARPS),),
            (_ROW_THREADS,),
            (
                *palette.arguments(),
                status,
                *(np.uint32(v) for v in (layout.rows, layout.cols, layout.stride)),
            ),
        )
        self._raise_for(status)

    def _raise_for(self, status: Array) -> None:
        found = self._device.to_host(status)
        wrong = np.flatnonzero(found)
        if wrong.size:
            row = int(wrong[0])
            raise IntegrityError(f"row {row} of a palette: {STATUSES[int(found[row])]}")


def require_palette(palette: Palette) -> None:
    """Raise UsageError unless the arrays of a palette are what its layout says."""
    layout = palette.layout
    check_base(palette.base)
    if refused := refusal(layout, 0):
        raise UsageError(refused.reason)
    for name, (size, dtype) in layout.arrays(palette.escapes.size).items():
        array = getattr(palette, name)
        require_buffer(array, ALIGNMENT, f"{name} of a palette")
        if array.dtype != dtype or array.shape != (size,):
            given = f"{array.dtype} {tuple(array.shape)}"
            raise UsageError(f"{name} of a palette is {given}, not {dtype} ({size},)")


def require_words(words: Array) -> Layout:
    """Return the extent of a matrix; raises UsageError if the array is not BF16 words of one."""
    if words.dtype != np.uint16 or words.ndim != 2:
        given = f"{words.dtype} {tuple(words.shape)}"
        raise UsageError(f"a matrix of BF16 words is uint16 [rows, cols], not {given}")
    require_buffer(words, ALIGNMENT, "the matrix")
    return Layout(*words.shape)
