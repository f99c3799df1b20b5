"""Presets: the named pipelines."""

from unweight_codecs.bounded.channel_outlier import ChannelOutlier
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.tile_svd import TileSvd
from unweight_codecs.codec import Stage
from unweight_codecs.errors import UsageError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of

_STAGES: dict[str, tuple[Stage, ...]] = {
    # One table per tensor, exponents only: the fewest passes over the data.
    "fast": (
        ExponentWindow(),
        HistogramGrid(mantissa_bits=0, tables=1),
        ScaleClasses(),
        BitExact(),
        Pack(),
    ),
    "default": (ExponentWindow(), HistogramGrid(), ScaleClasses(), BitExact(), Pack()),
    # Contexts cost a second pass and half the decoding rate.
    "max": (
        ExponentWindow(),
        HistogramGrid(max_mantissa_bits=3, tables=16),
        ScaleClasses(classes=16),
        BitExact(),
        Pack(),
    ),
}
PRESETS: dict[str, Pipeline] = {name: pipeline_of(name, stages) for name, stages in _STAGES.items()}
DEFAULT, SMALLEST = "default", "max"
STORED = "stored"  # leaves a tensor as it is; also what reports say of one without a pipeline

_BOUNDED_STAGES: dict[str, tuple[Stage, ...]] = {
    "fast": (
        ChannelOutlier(),
        LevelGrid("uniform", tables=1),
        TileSvd(),
        ErrorBound(),
        Pack(),
    ),
    "default": (ChannelOutlier(), LevelGrid(), TileSvd(), ErrorBound(), Pack()),
    # Factors are seldom worth their bits, and finding that out takes a decomposition.
    "max": (
        ChannelOutlier(),
        LevelGrid(tables=16),
        TileSvd(rank=8),
        ErrorBound(),
        Pack(),
    ),
}
BOUNDED: dict[str, Pipeline] = {
    name: pipeline_of(f"{name} bounded", stages) for name, stages in _BOUNDED_STAGES.items()
}


def preset(name: str) -> Pipeline:
    """Return the exact pipeline called ``name``; raises UsageError when there is none."""
    return _named(PRESETS, name)


def bounded_preset(name: str) -> Pipeline:
    """Return the error-bounded pipeline of a preset; raises UsageError when there is none."""
    return _named(BOUNDED, name)


def _named(pipelines: dict[str, Pipeline], name: str) -> Pipeline:
    try:
        return pipelines[name]
    except KeyError:
        raise UsageError(
            f"unknown preset {name!r}", hint=f"presets: {', '.join((*PRESETS, STORED))}"
        ) from None
