"""Palettes in NumPy: the definition that kernels are compared with."""

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_gpu.palette.format import (
    EXPONENTS,
    MAX_ESCAPES,
    WINDOW,
    Layout,
    Palette,
    Refusal,
    best_base,
    check_base,
    refusal,
)

Words = NDArray[np.uint16]

_SHIFTS = np.array([i % 2 * 16 + i // 2 * 4 for i in range(8)], np.uint32)


def exponents_of(words: Words) -> NDArray[np.int64]:
    """Return the exponent field of BF16 words."""
    return words.astype(np.int64) >> 7 & 0xFF


def encode(
    words: Words, base: int | None = None, max_escapes: float = MAX_ESCAPES
) -> Palette | Refusal:
    """Return the palette of BF16 words [rows, cols], or why there is none.

    Without a base, the window with the most weights is taken. Raises UsageError for an empty
    matrix, and for an impossible base.
    """
    layout = Layout(*words.shape)
    if base is None:
        base = best_base(np.bincount(exponents_of(words).reshape(-1), minlength=EXPONENTS))
    check_base(base)
    relative = exponents_of(words) - base + 1
    in_window = (relative >= 1) & (relative <= WINDOW)
    is_escape = ~in_window & (words & 0x7FFF != 0)
    if refused := refusal(layout, int(is_escape.sum()), max_escapes):
        return refused
    sm = np.zeros((layout.rows, layout.stride), np.uint8)
    nibbles = np.zeros((layout.rows, layout.stride), np.uint32)
    sm[:, : layout.cols] = np.where(is_escape, 0, (words >> 8 & 0x80) | (words & 0x7F))
    nibbles[:, : layout.cols] = np.where(in_window, relative, 0)
    packed = np.bitwise_or.reduce(nibbles.reshape(-1, 8) << _SHIFTS, axis=1)
    row_ptr = np.concatenate([[0], np.cumsum(is_escape.sum(axis=1))]).astype(np.uint32)
    columns = np.nonzero(is_escape)[1].astype(np.uint32)
    escapes = columns | words[is_escape].astype(np.uint32) << np.uint32(16)
    return Palette(layout, base, sm.reshape(-1), packed, row_ptr, escapes)


def decode(palette: Palette) -> Words:
    """Return the BF16 words [rows, cols]. Raises IntegrityError for lists of escapes that break."""
    layout = palette.layout
    counts = np.diff(palette.row_ptr.astype(np.int64))
    columns = palette.escapes & 0xFFFF
    if palette.row_ptr[0] or (counts < 0).any() or palette.row_ptr[-1] != palette.escapes.size:
        raise IntegrityError("the rows of a palette do not follow each other")
    if (columns >= layout.cols).any():
        raise IntegrityError("an escape of a palette lies beyond the last column")
    sm = palette.sm.astype(np.uint16)
    nibbles = (palette.nibbles[:, None] >> _SHIFTS & 15).astype(np.uint16).reshape(-1)
    exponents = np.where(nibbles == 0, 0, nibbles + (palette.base - 1)).astype(np.uint16)
    words = (sm & 0x80) << 8 | exponents << 7 | (sm & 0x7F)
    matrix: Words = words.reshape(layout.rows, layout.stride)[:, : layout.cols].copy()
    matrix[np.repeat(np.arange(layout.rows), counts), columns] = palette.escapes >> 16
    return matrix
