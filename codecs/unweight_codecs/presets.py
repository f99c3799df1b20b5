"""Presets: the named pipelines."""

from unweight_codecs.codec import Stage
from unweight_codecs.errors import UsageError
from unweight_codecs.manifest import STORED
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.stages.bound import Bound
from unweight_codecs.stages.channel_outlier import ChannelOutlier
from unweight_codecs.stages.error_bound import ErrorBound
from unweight_codecs.stages.grid import Grid
from unweight_codecs.stages.level_grid import LevelGrid
from unweight_codecs.stages.outlier import Outlier
from unweight_codecs.stages.pack import Pack
from unweight_codecs.stages.tile_low_rank import TileLowRank
from unweight_codecs.stages.tile_svd import TileSvd

_STAGES: dict[str, tuple[Stage, ...]] = {
    # One table per tensor, exponents only: the fewest passes over the data.
    "fast": (Outlier(), Grid(mantissa_bits=0, tables=1), TileSvd(), Bound(), Pack()),
    "default": (Outlier(), Grid(), TileSvd(), Bound(), Pack()),
    # Contexts cost a second pass and half the decoding rate.
    "max": (Outlier(), Grid(max_mantissa_bits=3, tables=16), TileSvd(classes=16), Bound(), Pack()),
}
PRESETS: dict[str, Pipeline] = {name: pipeline_of(name, stages) for name, stages in _STAGES.items()}
DEFAULT, SMALLEST = "default", "max"

_BOUNDED_STAGES: dict[str, tuple[Stage, ...]] = {
    "fast": (
        ChannelOutlier(),
        LevelGrid("uniform", tables=1),
        TileLowRank(),
        ErrorBound(),
        Pack(),
    ),
    "default": (ChannelOutlier(), LevelGrid(), TileLowRank(), ErrorBound(), Pack()),
    # Factors are seldom worth their bits, and finding that out takes a decomposition.
    "max": (
        ChannelOutlier(),
        LevelGrid(tables=16),
        TileLowRank(rank=8),
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
