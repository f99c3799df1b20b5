"""Tile SVD with an error bound: the strongest components of every tile are coded apart."""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unweight_codecs.bounded.float_words import values_of
from unweight_codecs.bounded.levels import MAX_STEP, MIN_STEP
from unweight_codecs.bounded.low_rank import components_of, in_integers, prediction_of
from unweight_codecs.codec import Mode, Stage, TensorView, check_setting
from unweight_codecs.entropy import zstd
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import MAX_RANK, LowRank
from unweight_codecs.layouts import WordLayout
from unweight_codecs.model import TensorModel
from unweight_codecs.span import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TILE = 1 << 20
_MIN_SIDE = 32
_FACTOR_BYTES = 1 << 17  # and a bit per weight
_SECTION = struct.Struct("<BIIfIII")
_OFF = b"\0"


@dataclass(frozen=True)
class TileSvd(Stage):
    """Factors tiles, T ≈ U S V', with as many components as pay; the residual goes on the grid.

    Attributes:
        rank: Most components of a tile; 0 switches the stage off.
        tile: Rows and columns of a tile; 0 takes the whole matrix as one.
    """

    rank: int = 0
    tile: int = 0

    name: ClassVar[str] = "tile_svd"
    slot: ClassVar[str] = "tile_svd"
    mode: ClassVar[Mode | None] = "bounded"

    def __post_init__(self) -> None:
        check_setting(self, "rank", self.rank, 0, MAX_RANK)
        check_setting(self, "tile", self.tile, 0, MAX_TILE)

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Factorise, and keep the rank whose energy is worth more bits than its factors take.

        Removing a share s of the energy saves log2(1 / (1 - s)) / 2 bits per weight at the same
        error; the error bound measures whether it really does.
        """
        layout = tensor.layout
        rows, columns = layout.words // max(1, layout.columns), layout.columns
        if not self.rank or min(rows, columns) < _MIN_SIDE or columns > MAX_TILE:
            return
        values = values_of(tensor.read(0, layout.words), tensor.spec.dtype)
        matrix = np.where(np.isfinite(values), values, np.float32(0)).reshape(rows, columns)
        energy = float(np.square(matrix, dtype=np.float64).sum())
        if energy == 0:
            return
        tile = (self.tile or rows, self.tile or columns)
        ranks = [
            rank
            for rank in sorted({1, 2, 4, 8, self.rank})
            if rank <= self.rank and not _too_many(layout, tile, rank)
        ]
        if not ranks:
            return
        best, components = 0.0, components_of(matrix, tile, ranks[-1])
        for rank in ranks:
            factors = in_integers(components, rank)
            if factors is None or not MIN_STEP <= float(factors.scale) <= MAX_STEP:
                continue
            rest = matrix - prediction_of(factors, 0, layout.words, columns).reshape(rows, columns)
            left = float(np.square(rest, dtype=np.float64).sum()) / energy
            gain = -layout.words * np.log2(max(left, 1e-9)) / 2 - 8 * len(_section(factors))
            if gain <= best:
                break
            best, model.on_levels.factors = gain, factors

    def write(self, model: TensorModel) -> bytes:
        """Write u8 rank (0: off), then tile, scale, and three zstd frames of factors."""
        factors = model.on_levels.factors
        return _OFF if factors is None else _section(factors)

    def read(self, section: bytes, model: TensorModel) -> None:
        """Restore the factors."""
        if section == _OFF:
            return
        try:
            model.on_levels.factors = _parse(section, model)
        except (struct.error, ValueError) as error:
            raise IntegrityError(f"the tile_svd section is damaged: {error}") from None

    def prepare(self, span: Span, model: TensorModel) -> None:
        """Add the predictions of the span's words."""
        factors, columns = model.on_levels.factors, model.layout.columns
        if factors is not None:
            span.prediction = prediction_of(factors, span.first_word, span.count, columns)


def _too_many(layout: WordLayout, tile: tuple[int, int], rank: int) -> bool:
    """Whether factors would take more bytes than readers accept, so that a head stays small."""
    rows = layout.words // layout.columns
    down, across = -(-rows // tile[0]), -(-layout.columns // tile[1])
    size = rank * (rows * across + layout.columns * down + 2 * down * across)
    return size > _FACTOR_BYTES + layout.words // 8


def _section(factors: LowRank) -> bytes:
    frames = [
        zstd.compress(part.tobytes())
        for part in (
            factors.weights.astype("<u2"),
            factors.left,
            factors.right.transpose(2, 0, 1),
        )
    ]
    rank = factors.weights.shape[2]
    lengths = (len(frame) for frame in frames)
    return _SECTION.pack(rank, *factors.tile, float(factors.scale), *lengths) + b"".join(frames)


def _parse(section: bytes, model: TensorModel) -> LowRank:
    rank, height, width, scale, *lengths = _SECTION.unpack_from(section)
    columns = model.layout.columns
    rows = model.layout.words // columns if columns else 0
    if not 1 <= rank <= MAX_RANK or not 1 <= height <= rows or not 1 <= width <= columns:
        raise ValueError("impossible rank or tile")
    if columns > MAX_TILE or not MIN_STEP <= scale <= MAX_STEP:
        raise ValueError("impossible scale or rows")
    if _too_many(model.layout, (height, width), rank):
        raise ValueError("too many factors")
    down, across = -(-rows // height), -(-columns // width)
    shapes: list[tuple[int, ...]] = [
        (down, across, rank),
        (rows, across, rank),
        (columns, down, rank),
    ]
    parts: list[NDArray[np.generic]] = []
    at = _SECTION.size
    for shape, length, kind in zip(shapes, lengths, ("<u2", "i1", "i1"), strict=True):
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        data = zstd.decompress(section[at : at + length], size)
        parts.append(np.frombuffer(data, kind).reshape(shape))
        at += length
    if at != len(section):
        raise ValueError("a wrong size")
    weights = parts[0].astype(np.uint16)
    if weights.max() > 512:
        raise ValueError("impossible weights")
    left = np.ascontiguousarray(parts[1], np.int8)
    right = np.ascontiguousarray(parts[2].transpose(1, 2, 0), np.int8)
    return LowRank((height, width), np.float32(scale), weights, left, right)
