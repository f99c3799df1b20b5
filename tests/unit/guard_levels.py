"""Runs the kernels of the error-bounded mode on buffers that end where memory ends.

Usage: python guard_levels.py KERNEL. See ``guard_pages.py``; run by ``test_kernels_levels.py``.
"""

import sys

import numpy as np

from tests.unit import guard_pages
from tests.unit.guard_pages import RNG, copied, expect_damage, guarded
from unweight_codecs.kernels.base import ALPHABET, LevelForm
from unweight_codecs.kernels.native import NativeKernels

SIZES = {"BF16": 2, "F16": 2, "F32": 4}
COUNTS = (*range(1, 70), 1023, 1024, 1025, 2049)
STEP = np.float32(0.1)


def levels(kernel: NativeKernels) -> None:
    """Words on grids of every kind, and back, with escapes that run out."""
    table = RNG.integers(-9, 9, 5).astype(np.int32)
    for dtype, size in SIZES.items():
        for form in (LevelForm(0, 20), LevelForm(3, 8), LevelForm(8, 255), LevelForm(0, 5, table)):
            for count in COUNTS:
                print(dtype, form.low_bits, form.limit, count)
                words = copied(RNG.integers(0, 256, count * size, np.uint8))
                prediction = copied(RNG.normal(0, 1, count).astype(np.float32))
                kept = copied(RNG.integers(0, 2, count).astype(bool))
                for guess, marks in ((None, None), (prediction, kept)):
                    if form.table is None:
                        kernel.quantise(words, dtype, marks, STEP, form, guess)
                    symbols = copied(RNG.integers(0, ALPHABET, count).astype(np.uint8))
                    low = copied(RNG.integers(0, 2, count if form.low_bits else 0, np.uint8))
                    number = int(np.count_nonzero(symbols >= form.limit)) * size
                    escapes, out = guarded(number), guarded(count * size)
                    kernel.dequantise(symbols, low, escapes, STEP, form, dtype, guess, out)
                    short = guarded(max(0, number - size))
                    expect_damage(
                        kernel.dequantise, symbols, low, short, STEP, form, dtype, guess, out
                    )
                    kernel.squared_error(words, out, dtype)
                    kernel.squared_error(words, words, dtype)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    guard_pages.CHECKS["levels"] = levels
    guard_pages.main(sys.argv[1], "levels")
