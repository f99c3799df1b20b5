"""What the kernels decode: which stages, coders and layouts; all else is left to the processor."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.accelerators import CodedSpan
from unweight_codecs.bounded.channel_outlier import ChannelOutlier
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.tile_svd import TileSvd
from unweight_codecs.codec import Stage
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import LENGTH_BITS, TABLE_BITS
from unweight_codecs.payload.pack import Pack
from unweight_gpu.decoding.records import KIND_OF_CODER
from unweight_gpu.palette.format import (
    MAX_BASE,
    MIN_BASE,
    ROW_WORDS,
    Layout,
    refusal,
)

# The stages that the kernels stand for, of exactly these types: another stage in the place of one
# may code something else, even if it is a subclass, and even if it ships with the library.
STAGE_TYPES: Final[frozenset[tuple[type[Stage], ...]]] = frozenset(
    {
        (ExponentWindow, HistogramGrid, ScaleClasses, BitExact, Pack),
        (ChannelOutlier, LevelGrid, TileSvd, ErrorBound, Pack),
    }
)
_PLANE_WORDS: Final = (1, 2, 3, 4, 8)  # bytes of the words that kernels join from planes


def span_obstacle(span: CodedSpan) -> str:
    """Return why kernels cannot decode a span, "" if they can."""
    if span.stage_types not in STAGE_TYPES:
        return "a stage without a kernel"
    return obstacle(span.model, span.directory)


def obstacle(model: TensorModel, directory: NDArray[np.void]) -> str:
    """Return why kernels cannot decode chunks of the stages in ``STAGE_TYPES``, "" if they can."""
    layout = model.layout
    if layout.fields:
        return "quantised blocks"
    if not layout.is_float and layout.word_bytes not in _PLANE_WORDS:
        return f"words of {layout.word_bytes} bytes"
    names = _coders_of(model, directory) - KIND_OF_CODER.keys()
    return f"the coder {min(names)}" if names else ""


def palette_obstacle(model: TensorModel, directory: NDArray[np.void]) -> str:
    """Return why kernels cannot make a palette of a whole tensor, "" if they can."""
    layout, words = model.layout, max(1, model.layout.words)
    if model.spec.dtype != "BF16" or not model.is_exact or len(model.spec.shape) < 2:
        return "not a BF16 matrix that is coded exactly"
    if not layout.words or layout.columns % ROW_WORDS:
        return f"rows of {layout.columns} weights, not a multiple of {ROW_WORDS}"
    if not MIN_BASE <= model.base <= MAX_BASE:
        return f"a window that begins at exponent {model.base}"
    lengths = directory["segments"][:, -1] & ((1 << LENGTH_BITS) - 1)
    refused = refusal(Layout(words // layout.columns, layout.columns), int(lengths.sum()))
    return refused.reason if refused else obstacle(model, directory)


def _coders_of(model: TensorModel, directory: NDArray[np.void]) -> set[str]:
    """Return the names of the coders that chunks use.

    A number without a name, in a damaged file, is left out: parsing the directory refuses it.
    """
    numbers = np.unique(directory["segments"] >> (LENGTH_BITS + TABLE_BITS)).tolist()
    return {model.coder_names[number] for number in numbers if number < len(model.coder_names)}
