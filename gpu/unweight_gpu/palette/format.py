"""The palette: how a BF16 matrix lies in device memory in about 12 bits per weight.

Nothing of it is ever written to a file. Weights are at fixed places, so a kernel reads any of them
without decoding others. For a matrix [rows, cols], ``stride`` is ``cols`` rounded up to a multiple
of 16, and weight (r, c) is number i = r * stride + c of the planes:

========== ===================== =============================================================
``sm``     u8 [rows * stride]    sign << 7 | mantissa
``nibbles`` u32 [rows * stride/8] the exponent, relative to the base, in four bits of word i // 8,
                                 from bit (i % 2) * 16 + (i % 8 // 2) * 4: neighbours lie 16 bits
                                 apart, so that one mask brings both exponents into a pair of words
``row_ptr`` u32 [rows + 1]       the number of escapes in all rows before
``escapes`` u32 [row_ptr[rows]]  c | word << 16, by rows, within a row by columns
========== ===================== =============================================================

The base, 1 to 240, is the first of 15 exponents. A nibble of 1 to 15 stands for the exponents base
to base + 14. A nibble of 0 is a zero with the sign of ``sm``, whose mantissa is 0; it also keeps
the place of an *escape*, a weight with another exponent (infinities, NaNs and subnormals are
always such), and there ``sm`` is 0 too. What reads the planes alone sees +0 for an escape, so
kernels need no test for it: they add what the list says. The places of columns from ``cols`` on
hold +0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import UsageError
from unweight_gpu.device.interface import Array

ROW_WORDS: Final = 16
WINDOW: Final = 15
MIN_BASE: Final = 1  # exponent 0 is that of zero
MAX_BASE: Final = 240  # exponent 255 is that of infinity
MAX_COLUMNS: Final = 1 << 16  # a column of an escape has 16 bits
MAX_ESCAPES: Final = 0.02  # of all weights; see ``Refusal``
EXPONENTS: Final = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """The extent of a matrix in a palette.

    Raises:
        UsageError: The matrix is empty.
    """

    rows: int
    cols: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.cols < 1:
            raise UsageError(f"a matrix of {self.rows} x {self.cols} weights has no palette")

    @property
    def stride(self) -> int:
        """BufferPlan that a row takes in the planes."""
        return -(-self.cols // ROW_WORDS) * ROW_WORDS

    @property
    def places(self) -> int:
        """BufferPlan of the planes."""
        return self.rows * self.stride

    def arrays(self, escapes: int) -> dict[str, tuple[int, np.dtype[Any]]]:
        """Return the length and dtype of every array of a palette with so many escapes."""
        word = np.dtype(np.uint32)
        return {
            "sm": (self.places, np.dtype(np.uint8)),
            "nibbles": (self.places // 8, word),
            "row_ptr": (self.rows + 1, word),
            "escapes": (escapes, word),
        }

    def nbytes(self, escapes: int) -> int:
        """Return the size of a palette with so many escapes."""
        return sum(size * dtype.itemsize for size, dtype in self.arrays(escapes).values())


@dataclass(frozen=True, slots=True, eq=False)
class Palette:
    """A matrix in this format; the arrays are on a device, or NumPy's."""

    layout: Layout
    base: int
    sm: Array
    nibbles: Array
    row_ptr: Array
    escapes: Array

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self.layout.nbytes(self.escapes.size)

    def arguments(self) -> tuple[Any, ...]:
        """Return what kernels take first: the arrays, and how many escapes there are."""
        return (
            self.sm,
            self.nibbles,
            self.row_ptr,
            self.escapes,
            np.uint32(self.escapes.size),
        )

    @property
    def bits_per_weight(self) -> float:
        """Size per weight, all four arrays."""
        return 8 * self.nbytes / (self.layout.rows * self.layout.cols)


@dataclass(frozen=True, slots=True)
class PaletteOffsets:
    """Where the arrays of a palette lie in a larger buffer.

    Attributes:
        layout: The extent of the matrix.
        base: First exponent of the window.
        escapes: Number of escapes.
        arrays: Offset in bytes of every array, by name.
    """

    layout: Layout
    base: int
    escapes: int
    arrays: Mapping[str, int]

    def palette(self, buffer: Array) -> Palette:
        """Return the palette in a buffer of bytes; its arrays are views of it."""
        views = {}
        for name, (size, dtype) in self.layout.arrays(self.escapes).items():
            offset = self.arrays[name]
            views[name] = buffer[offset : offset + size * dtype.itemsize].view(dtype)
        return Palette(self.layout, self.base, **views)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a matrix is better kept in BF16.

    Memory alone would allow escapes for an eighth of the weights. But each costs a kernel two
    dependent loads that the planes do not need, and matrices of trained models stay far below the
    limit of 2 %: what exceeds it is not what this format is for.
    """

    reason: str


def refusal(layout: Layout, escapes: int, max_escapes: float = MAX_ESCAPES) -> Refusal | None:
    """Return why a matrix with so many escapes is refused, or None."""
    if layout.cols > MAX_COLUMNS:
        return Refusal(f"{layout.cols} columns; a palette has at most {MAX_COLUMNS}")
    share = escapes / (layout.rows * layout.cols)
    if share > max_escapes:
        return Refusal(
            f"{share:.1%} of the weights lie outside the window of {WINDOW} exponents; "
            f"at most {max_escapes:.0%} may"
        )
    return None


def best_base(exponents: NDArray[np.integer]) -> int:
    """Return the base of the window with the most weights, the lowest of several.

    ``exponents`` counts the values of the exponent field, 256 numbers.
    """
    sums = np.concatenate([[0], np.cumsum(exponents, dtype=np.int64)])
    first = np.arange(MIN_BASE, MAX_BASE + 1)
    return int(first[np.argmax(sums[first + WINDOW] - sums[first])])


def check_base(base: int) -> None:
    """Raise UsageError unless a palette can have this base."""
    if not MIN_BASE <= base <= MAX_BASE:
        exponents = f"{MIN_BASE} to {MAX_BASE}"
        raise UsageError(f"no palette begins at exponent {base}, only at {exponents}")
