"""Low-rank factors of the tiles of a matrix, in integers with one scale."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import LowRank
from unweight_codecs.quantise.values import Values

LARGEST_FACTOR: Final = 127
LARGEST_WEIGHT: Final = 512  # of the strongest component; sums of up to 256 fit 32 bits
MAX_RANK: Final = 16


def prediction_of(factors: LowRank, first: int, count: int, columns: int) -> Values:
    """Return the predictions of ``count`` words from word ``first`` of a matrix of ``columns``."""
    begin, end = first // columns, -(-(first + count) // columns)
    out = np.empty((end - begin, columns), np.float32)
    height, width = factors.tile
    for row in range(begin, end):
        for tile in range(-(-columns // width)):
            left = factors.left[row, tile].astype(np.int32)
            left *= factors.weights[row // height, tile]
            part = slice(tile * width, min((tile + 1) * width, columns))
            right = factors.right[part, row // height].astype(np.int32)
            out[row - begin, part] = (right @ left).astype(np.float32)
    out *= factors.scale
    skip = first - begin * columns
    return out.reshape(-1)[skip : skip + count]


def factorise(matrix: NDArray[np.float32], tile: tuple[int, int], rank: int) -> LowRank | None:
    """Return the ``rank`` strongest components of every tile; None where they are all zero.

    The components come from randomised subspace iteration (Halko, Martinsson, Tropp 2011,
    algorithm 4.4), as a whole decomposition of a large matrix would take minutes.
    """
    rows, columns = matrix.shape
    height, width = min(tile[0], rows), min(tile[1], columns)
    down, across = -(-rows // height), -(-columns // width)
    left = np.zeros((rows, across, rank), np.float64)
    right = np.zeros((columns, down, rank), np.float64)
    for a in range(down):
        for b in range(across):
            part = matrix[a * height : (a + 1) * height, b * width : (b + 1) * width]
            one, two = _components(part, rank)
            left[a * height : a * height + len(one), b, : one.shape[1]] = one
            right[b * width : b * width + len(two), a, : two.shape[1]] = two
    return _in_integers(left, right, (height, width))


def _components(
    tile: NDArray[np.float32], rank: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return factors (rows, k) and (columns, k), each with the root of the singular values."""
    wanted = min(rank, *tile.shape)
    start = np.random.default_rng(0).standard_normal((tile.shape[1], min(wanted + 4, *tile.shape)))
    basis = np.linalg.qr(tile @ start)[0]
    for _ in range(2):
        basis = np.linalg.qr(tile @ np.linalg.qr(tile.T @ basis)[0])[0]
    one, singular, two = np.linalg.svd(basis.T @ tile, full_matrices=False)
    root = np.sqrt(singular[:wanted])
    return (basis @ one[:, :wanted]) * root, two[:wanted].T * root


def _in_integers(
    left: NDArray[np.float64], right: NDArray[np.float64], tile: tuple[int, int]
) -> LowRank | None:
    """Round factors to int8, each component of a tile by its own largest entry."""
    height, width = tile
    down, across, rank = right.shape[1], left.shape[1], left.shape[2]
    sizes = np.zeros((down, across, rank, 2))
    for a in range(down):
        for b in range(across):
            sizes[a, b, :, 0] = np.abs(left[a * height : (a + 1) * height, b]).max(axis=0)
            sizes[a, b, :, 1] = np.abs(right[b * width : (b + 1) * width, a]).max(axis=0)
    strength = sizes.prod(axis=-1) / LARGEST_FACTOR**2
    if not np.isfinite(strength).all() or strength.max() == 0:
        return None
    scale = strength.max() / LARGEST_WEIGHT
    weights = np.rint(strength / scale).astype(np.uint16)
    divisors = np.where(sizes > 0, sizes, 1) / LARGEST_FACTOR
    row_tiles = np.arange(len(left)) // height
    column_tiles = np.arange(len(right)) // width
    whole_left = np.rint(left / divisors[row_tiles, :, :, 0]).astype(np.int8)
    whole_right = np.rint(right / divisors[:, column_tiles, :, 1]).astype(np.int8)
    return LowRank((height, width), np.float32(scale), weights, whole_left, whole_right)
