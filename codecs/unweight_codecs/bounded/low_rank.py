"""Low-rank factors of the tiles of a matrix, in integers with one scale."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.float_words import Values
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import LowRank

MAX_FACTOR: Final = 127
MAX_WEIGHT: Final = 512  # of the strongest component; sums of up to 256 fit 32 bits
_ITERATIONS: Final = 2
_MORE_COLUMNS: Final = 4  # than components: they take what the iteration has not yet sorted out


def prediction_of(factors: LowRank, first: int, count: int, columns: int) -> Values:
    """Return the predictions of ``count`` words from word ``first`` of a matrix of ``columns``."""
    return kernels().predict(factors, first, count, columns)


@dataclass(frozen=True, slots=True)
class Components:
    """The strongest components of every tile of a matrix, the strongest first.

    Attributes:
        tile: Rows and columns of a tile.
        left: float64, shape (rows, tile columns, rank), with the roots of the singular values.
        right: float64, shape (tile rows, rank, columns), with the roots of the singular values.
    """

    tile: tuple[int, int]
    left: NDArray[np.float64]
    right: NDArray[np.float64]


def components_of(matrix: Values, tile: tuple[int, int], rank: int) -> Components:
    """Return ``rank`` components of every tile, of zeros where a tile has fewer.

    They come from randomised subspace iteration (Halko, Martinsson, Tropp 2011, algorithm 4.4),
    as a whole decomposition of a large matrix would take minutes.
    """
    rows, columns = matrix.shape
    largest = np.abs(matrix).max(initial=np.float32(0)) or np.float32(1)
    matrix = matrix / largest  # products of float32 then are not too large
    height, width = min(tile[0], rows), min(tile[1], columns)
    down, across = -(-rows // height), -(-columns // width)
    left = np.zeros((rows, across, rank))
    right = np.zeros((down, rank, columns))
    for a in range(down):
        for b in range(across):
            part = matrix[a * height : (a + 1) * height, b * width : (b + 1) * width]
            one, two = _decomposed(part, rank)
            number = one.shape[1]
            left[a * height : a * height + len(one), b, :number] = one
            right[a, :number, b * width : b * width + two.shape[1]] = two
    root = np.sqrt(np.float64(largest))
    return Components((height, width), left * root, right * root)


def _decomposed(tile: Values, rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return factors (rows, k) and (k, columns), each with the root of the singular values."""
    wanted = min(rank, *tile.shape)
    number = min(wanted + _MORE_COLUMNS, *tile.shape)
    start = np.random.default_rng(0).standard_normal((tile.shape[1], number), np.float32)
    basis = np.linalg.qr(tile @ start)[0]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(tile @ np.linalg.qr(tile.T @ basis)[0])[0]
    one, singular, two = np.linalg.svd((basis.T @ tile).astype(np.float64), full_matrices=False)
    root = np.sqrt(singular[:wanted])
    return (basis @ one[:, :wanted]) * root, two[:wanted] * root[:, None]


def in_integers(components: Components, rank: int) -> LowRank | None:
    """Round the ``rank`` strongest components to int8, each by its own largest entry in a tile.

    None where all of them are zero, or one is not finite.
    """
    height, width = components.tile
    left, right = components.left[..., :rank], components.right[:, :rank]
    tops, sides = range(0, len(left), height), range(0, right.shape[2], width)
    left_sizes = np.maximum.reduceat(np.abs(left), tops, axis=0)
    right_sizes = np.maximum.reduceat(np.abs(right), sides, axis=2).transpose(0, 2, 1)
    strength = left_sizes * right_sizes / MAX_FACTOR**2
    if not np.isfinite(strength).all() or strength.max() == 0:
        return None
    scale = strength.max() / MAX_WEIGHT
    row_tiles = np.arange(len(left)) // height
    column_tiles = np.arange(right.shape[2]) // width
    return LowRank(
        components.tile,
        np.float32(scale),
        np.ascontiguousarray(np.rint(strength / scale), np.uint16),
        _rounded(left, left_sizes[row_tiles]),
        _rounded(right, right_sizes.transpose(0, 2, 1)[:, :, column_tiles]),
    )


def _rounded(factors: NDArray[np.float64], largest: NDArray[np.float64]) -> NDArray[np.int8]:
    whole = np.rint(factors * MAX_FACTOR / np.where(largest > 0, largest, 1))
    return np.ascontiguousarray(whole, np.int8)
