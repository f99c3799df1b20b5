"""Other ways to make the weights of a matrix smaller: what they leave of it, and how many bytes.

Sizes are computed from the formats and are those of the payload alone, without headers or padding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.float_words import Values

QUANTISED: Final = "quantised"
PRUNED: Final = "pruned"
GROUP: Final = 32  # weights with a scale of their own, in 4-bit formats

# From weights, (rows, columns), and the bytes of a stored one to what is left of them, and bytes.
Change = Callable[[Values, int], tuple[Values, int]]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to make matrices smaller.

    Attributes:
        name: What reports call it.
        kind: ``QUANTISED`` or ``PRUNED``.
        change: What it does to a matrix of finite weights.
        block: Only rows of a multiple of so many weights can be changed.
    """

    name: str
    kind: str
    change: Change
    block: int = 1


def int8_per_channel(weights: Values, word_bytes: int) -> tuple[Values, int]:
    """Round to 8 bits, symmetric around zero, with an F32 scale per row."""
    return _symmetric(weights, 8, np.float32)


def int4_in_groups(weights: Values, word_bytes: int) -> tuple[Values, int]:
    """Round to 4 bits, symmetric around zero, with an F16 scale per group of ``GROUP``."""
    restored, nbytes = _symmetric(weights.reshape(-1, GROUP), 4, np.float16)
    return restored.reshape(weights.shape), nbytes


def _symmetric(
    groups: Values, bits: int, scale_type: type[np.float16 | np.float32]
) -> tuple[Values, int]:
    """Round each row of ``groups`` to the nearest multiples of a scale, as many down as up."""
    largest = (1 << (bits - 1)) - 1
    wanted = np.abs(groups).max(axis=1, keepdims=True) / np.float32(largest)
    scales = np.minimum(wanted, np.finfo(scale_type).max).astype(scale_type)
    steps = scales.astype(np.float32)
    levels = np.rint(groups / np.where(steps > 0, steps, np.float32(1)))
    # A small scale loses digits, so that the largest weight may lie beyond the last level.
    np.clip(levels, -largest, largest, out=levels)
    return levels * steps, groups.size * bits // 8 + scales.nbytes


def ggml(dtype: str) -> Change:
    """Return the encoding of llama.cpp called ``dtype``, as the package gguf does it."""

    def change(weights: Values, word_bytes: int) -> tuple[Values, int]:
        from gguf import GGMLQuantizationType, dequantize, quantize

        kind = GGMLQuantizationType[dtype]
        coded = quantize(weights, kind)
        return dequantize(coded, kind), coded.nbytes

    return change


def prune_weights(share: float) -> Change:
    """Return the removal of that share of a matrix's weights, the smallest.

    Stored are a bit per weight, which says what is left, and the words that are.
    """

    def change(weights: Values, word_bytes: int) -> tuple[Values, int]:
        removed = _smallest(np.abs(weights).reshape(-1), share).reshape(weights.shape)
        left = weights.size - int(np.count_nonzero(removed))
        return np.where(removed, np.float32(0), weights), -(-weights.size // 8) + left * word_bytes

    return change


def prune_rows(share: float) -> Change:
    """Return the removal of that share of a matrix's rows, those of the least norm.

    Stored are a bit per row, which says what is left, and the rows that are.
    """

    def change(weights: Values, word_bytes: int) -> tuple[Values, int]:
        squares = np.square(weights, dtype=np.float64).sum(axis=1)
        removed = _smallest(squares, share)
        rows, columns = weights.shape
        left = rows - int(np.count_nonzero(removed))
        restored = np.where(removed[:, None], np.float32(0), weights)
        return restored, -(-rows // 8) + left * columns * word_bytes

    return change


def _smallest(sizes: NDArray[np.floating], share: float) -> NDArray[np.bool_]:
    """Mark exactly that share of ``sizes``; of equal ones the first."""
    count = round(share * sizes.size)
    if not count:
        return np.zeros(sizes.size, np.bool_)
    limit = np.partition(sizes, count - 1)[count - 1]
    marked: NDArray[np.bool_] = sizes < limit
    equal = np.flatnonzero(sizes == limit)
    marked[equal[: count - int(np.count_nonzero(marked))]] = True
    return marked


METHODS: Final = (
    Method("INT8 per channel", QUANTISED, int8_per_channel),
    Method(f"INT4 per {GROUP}", QUANTISED, int4_in_groups, GROUP),
    Method("Q8_0", QUANTISED, ggml("Q8_0"), 32),
    Method("Q4_0", QUANTISED, ggml("Q4_0"), 32),
    Method("20 % of weights pruned", PRUNED, prune_weights(0.2)),
    Method("50 % of weights pruned", PRUNED, prune_weights(0.5)),
    Method("20 % of rows pruned", PRUNED, prune_rows(0.2)),
    Method("50 % of rows pruned", PRUNED, prune_rows(0.5)),
)
