"""Scale classes: a rank-1 model of the logarithm of magnitude selects the frequency table.

The logarithm of a weight's magnitude is modelled as the scale of its row plus the scale of its
column, the rank-1 factorisation of the energies seen through the logarithm. The sum of both scales
selects one of K frequency tables. Scales are means of the exponent with its top mantissa bits, a
piecewise linear log2, so that everything stays in integers.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import Mode, Stage, TensorView, check_setting
from unweight_codecs.entropy import frequencies, zstd
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import ALPHABET, Bytes, padded
from unweight_codecs.layouts.words import HISTOGRAM_MANTISSA_BITS
from unweight_codecs.model import SCALE_UNITS, ContextMap, TensorModel
from unweight_codecs.span import Span

MAX_CLASSES = 16
SUMS = 511  # of two uint8 scales
_UNITS_PER_STEP = SCALE_UNITS >> HISTOGRAM_MANTISSA_BITS  # histograms resolve 1/8 octave
_MIN_SIDE, _MAX_COLUMNS = 16, 1 << 20
_STEPS = ((4096, 1), (1024, 2), (0, 4))  # (values in a mean, units it is rounded to)


@dataclass(frozen=True)
class ScaleClasses(Stage):
    """Finds row and column scales, and keeps them only if the coded size shrinks.

    Attributes:
        classes: K, the number of contexts; 1 switches the stage off.
    """

    classes: int = 1

    name: ClassVar[str] = "scale_classes"
    slot: ClassVar[str] = "tile_svd"
    mode: ClassVar[Mode | None] = "exact"

    def __post_init__(self) -> None:
        check_setting(self, "classes", self.classes, 1, MAX_CLASSES)

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Fit scales and a table per class; change nothing if they cost more than they save."""
        layout = tensor.layout
        if (
            self.classes == 1
            or "symbol" not in model.tables
            or not _MIN_SIDE <= layout.columns <= _MAX_COLUMNS
        ):
            return
        rows = layout.words // layout.columns
        if rows < _MIN_SIDE:
            return
        row_scales, column_scales = _scales(tensor, model)
        contexts, thresholds = _contexts_of_sums(row_scales, column_scales, self.classes)
        if not len(thresholds):  # one context says nothing
            return
        counts = _context_counts(tensor, model, row_scales, column_scales, contexts)
        tables = frequencies.normalise(counts)
        found = ContextMap(row_scales, column_scales, contexts, tables)
        bits = int(frequencies.costs(counts, tables).sum()) + 8 * len(_section(found, thresholds))
        without = model.stream_bits["symbol"]
        if bits >= without:
            return
        model.estimated_bits += bits - without
        model.stream_bits["symbol"] = bits
        model.context_map = found
        del model.tables["symbol"], model.table_of_chunk["symbol"]

    def write(self, model: TensorModel) -> bytes:
        """Write u8 K (0: off), then thresholds, zstd-compressed scales and K tables."""
        if model.context_map is None:
            return b"\0"
        steps = np.flatnonzero(np.diff(model.context_map.context_of_sum.astype(np.int64))) + 1
        return _section(model.context_map, steps)

    def read(self, section: bytes, model: TensorModel) -> None:
        """Restore the context map."""
        if section == b"\0":
            return
        columns = model.layout.columns
        rows = model.layout.words // columns if columns else 0
        if rows < _MIN_SIDE or not _MIN_SIDE <= columns <= _MAX_COLUMNS:
            raise IntegrityError("the tile_svd section is of a tensor that cannot have one")
        try:
            number = section[0]
            steps = np.frombuffer(section, "<u2", number - 1, 1)
            at = 1 + steps.nbytes
            row_scales, at = _read_scales(section, at, rows)
            column_scales, at = _read_scales(section, at, columns)
            tables, at = frequencies.parse(section, at, number)
        except (IndexError, ValueError, struct.error) as error:
            raise IntegrityError(f"the tile_svd section is damaged: {error}") from None
        wrong = (
            np.any(np.diff(steps.astype(np.int64)) <= 0)
            or np.any(steps == 0)
            or np.any(steps >= SUMS)
        )
        if (
            at != len(section)
            or not 2 <= number <= MAX_CLASSES
            or wrong
            or not model.layout.is_float
        ):
            raise IntegrityError("the tile_svd section is damaged")
        contexts = np.searchsorted(steps, np.arange(SUMS), side="right").astype(np.uint8)
        model.context_map = ContextMap(row_scales, column_scales, contexts, tables)

    def prepare(self, span: Span, model: TensorModel) -> None:
        """Add ``context``, the table of every symbol, padded with context 0."""
        if model.context_map is None:
            return
        contexts = np.zeros(padded(span.count), np.uint8)
        contexts[: span.count] = _contexts(model.context_map, span.first_word, span.count)
        span.streams["context"] = contexts


def _contexts(found: ContextMap, first_word: int, count: int) -> Bytes:
    columns = len(found.column_scales)
    first, last = first_word // columns, -(-(first_word + count) // columns)
    # Few distinct row scales occur, so whole rows of contexts are made once and copied.
    scales, which = np.unique(found.row_scales[first:last], return_inverse=True)
    sums = scales.astype(np.uint16)[:, None] + found.column_scales.astype(np.uint16)
    rows: Bytes = found.context_of_sum[sums][which].reshape(-1)
    skip = first_word - first * columns
    return rows[skip : skip + count]


def _row_blocks(tensor: TensorView, model: TensorModel) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield first row and log magnitudes of whole rows, in 1/8 octaves, at least the base."""
    layout = tensor.layout
    rows = layout.words // layout.columns
    step = max(1, tensor.chunk_words // layout.columns)
    mask = (1 << layout.histogram_bits) - 1
    floor = model.base << (layout.histogram_bits - layout.exponent_bits)
    for first in range(0, rows, step):
        number = min(step, rows - first)
        data = tensor.read(first * layout.columns, number * layout.columns)
        words = data.view(f"<u{layout.word_bytes}")
        field = (words >> words.dtype.type(layout.histogram_shift)).astype(np.int64) & mask
        yield first, np.maximum(field, floor).reshape(number, layout.columns)


def _scales(tensor: TensorView, model: TensorModel) -> tuple[Bytes, Bytes]:
    layout = tensor.layout
    rows = layout.words // layout.columns
    row_sums, column_sums = np.zeros(rows, np.int64), np.zeros(layout.columns, np.int64)
    for first, field in _row_blocks(tensor, model):
        row_sums[first : first + len(field)] = field.sum(axis=1)
        column_sums += field.sum(axis=0)
    return _quantised(row_sums, layout.columns), _quantised(column_sums, rows)


def _quantised(sums: NDArray[np.int64], number: int) -> Bytes:
    """Turn sums of ``number`` eighths of an octave into means in units of 1/32 octave.

    A mean of few values is noise below some digit, which would only cost bits to store.
    """
    step = next(step for least, step in _STEPS if number >= least)
    means = (2 * _UNITS_PER_STEP * sums // step + number) // (2 * number) * step
    return np.asarray(np.clip(means - means.min(), 0, 255), np.uint8)


def _contexts_of_sums(
    row_scales: Bytes, column_scales: Bytes, wanted: int
) -> tuple[Bytes, NDArray[np.int64]]:
    """Cut the distribution of the sums into at most ``wanted`` contexts of about equal weight."""
    by_row = np.bincount(row_scales, minlength=256).astype(np.int64)
    by_column = np.bincount(column_scales, minlength=256).astype(np.int64)
    weight = np.convolve(by_row, by_column)
    below = np.cumsum(weight) - weight
    rank = np.minimum(below * wanted // weight.sum(), wanted - 1)
    used = np.unique(rank[weight > 0])
    contexts = np.searchsorted(used, rank, side="right") - 1
    contexts = np.maximum.accumulate(np.maximum(contexts, 0))
    return contexts.astype(np.uint8), np.flatnonzero(np.diff(contexts)) + 1


def _context_counts(
    tensor: TensorView, model: TensorModel, row_scales: Bytes, column_scales: Bytes, contexts: Bytes
) -> NDArray[np.int64]:
    layout, number = tensor.layout, int(contexts.max()) + 1
    shift = layout.histogram_bits - layout.exponent_bits - model.top_bits
    counts = np.zeros(number * ALPHABET, np.int64)
    base, limit = model.base << model.top_bits, model.split.escape_limit
    top_mask = (1 << model.top_bits) - 1
    found = ContextMap(row_scales, column_scales, contexts, np.zeros((0, ALPHABET), np.uint16))
    mask = (1 << layout.histogram_bits) - 1
    for first in range(0, layout.words, tensor.chunk_words):
        count = min(tensor.chunk_words, layout.words - first)
        words = tensor.read(first, count).view(f"<u{layout.word_bytes}")
        field = (words >> words.dtype.type(layout.histogram_shift)).astype(np.int64) & mask
        value = field >> shift
        symbol = value - base
        symbol = np.where((symbol < 0) | (symbol >= limit), limit | value & top_mask, symbol)
        index = _contexts(found, first, count).astype(np.int64) * ALPHABET + symbol
        counts += np.bincount(index, minlength=len(counts))
    return counts.reshape(number, ALPHABET)


def _section(found: ContextMap, steps: NDArray[np.int64]) -> bytes:
    parts = [struct.pack("<B", len(found.tables)), steps.astype("<u2").tobytes()]
    for scales in (found.row_scales, found.column_scales):
        coded = zstd.compress(scales.tobytes())
        parts += [struct.pack("<I", len(coded)), coded]
    return b"".join([*parts, frequencies.serialise(found.tables)])


def _read_scales(section: bytes, at: int, number: int) -> tuple[Bytes, int]:
    (length,) = struct.unpack_from("<I", section, at)
    coded = section[at + 4 : at + 4 + length]
    if len(coded) != length:
        raise ValueError("the scales are cut short")
    return np.frombuffer(zstd.decompress(coded, number), np.uint8), at + 4 + length
