"""The product of ``gemm.cu`` in NumPy: the same operations in the same order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweight_gpu.palette.format import Palette
from unweight_gpu.palette.reference import decode

Words = NDArray[np.uint16]
Floats = NDArray[np.float32]

STEP, LANES, LANE_WORDS, SLICES = 512, 32, 16, 2


def widened(words: Words) -> Floats:
    """BF16 words as numbers."""
    return (words.astype(np.uint32) << 16).view(np.float32)


def narrowed(values: NDArray[Any]) -> Words:
    """The nearest BF16 words, ties to even; NaN becomes 0x7fff."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def fused(a: Floats, b: Floats, c: Floats) -> Floats:
    """``a * b + c``, rounded once to binary32.

    The product is exact in binary64. The sum is rounded to odd there: what was cut off is known, so
    that a second rounding gives what one alone would have given (Boldo and Melquiond, 2008).
    """
    with np.errstate(all="ignore"):
        product, addend = a.astype(np.float64) * b, c.astype(np.float64)
        total = product + addend
        part = total - product
        error = (product - (total - part)) + (addend - part)
        even = total.view(np.int64) % 2 == 0
        moved = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        inexact = np.isfinite(total) & (error != 0) & even
        return np.where(inexact, moved, total).astype(np.float32)


def product(palette: Palette, x: Words) -> Floats:
    """Return x Wᵀ for a palette in host memory, bit by bit what the kernels compute."""
    layout, weights = palette.layout, widened(decode(palette))
    listed = np.zeros((layout.rows, layout.cols), bool)
    row_of = np.repeat(np.arange(layout.rows), np.diff(palette.row_ptr.astype(np.int64)))
    columns = (palette.escapes & 0xFFFF).astype(np.int64)
    listed[row_of, columns] = True
    planes = _by_lane(np.where(listed, np.float32(0), weights))
    inputs = _by_lane(widened(x))
    kept_back = _by_lane(listed)
    sums = np.zeros((len(x), layout.rows, SLICES, LANES), np.float32)
    for step in range(planes.shape[1]):
        part = sums[:, :, step % SLICES]
        for i in range(LANE_WORDS):
            values = inputs[:, None, step, :, i]
            added = fused(planes[None, :, step, :, i], values, part)
            hidden = kept_back[None, :, step, :, i] & ~np.isfinite(values)
            part[...] = np.where(hidden, part, added)
    for number, (row, column) in enumerate(zip(row_of, columns, strict=True)):
        place = (number - int(palette.row_ptr[row])) % (SLICES * LANES)
        part = sums[:, row, place // LANES, place % LANES]
        weight = np.broadcast_to(weights[row, column], part.shape)
        part[...] = fused(weight, widened(x[:, column]), part)
    with np.errstate(all="ignore"):
        while sums.shape[-1] > 1:
            half = sums.shape[-1] // 2
            sums = sums[..., :half] + sums[..., half:]
        return sums[:, :, 0, 0] + sums[:, :, 1, 0]


def _by_lane(matrix: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix as [rows, steps, lanes, words of a lane], with zeros behind the columns."""
    steps = -(-matrix.shape[1] // STEP)
    padded = np.zeros((len(matrix), steps * STEP), matrix.dtype)
    padded[:, : matrix.shape[1]] = matrix
    return padded.reshape(len(matrix), steps, LANES, LANE_WORDS)
