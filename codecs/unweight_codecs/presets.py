"""Presets: the named pipelines."""

from unweight_codecs.errors import UsageError
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.stages.bound import Bound
from unweight_codecs.stages.grid import Grid
from unweight_codecs.stages.outlier import Outlier
from unweight_codecs.stages.pack import Pack
from unweight_codecs.stages.tile_svd import TileSvd

PRESETS: dict[str, Pipeline] = {
    "fast": pipeline_of((Outlier(), Grid(mantissa_bits=0, tables=1), TileSvd(), Bound(), Pack())),
    "default": pipeline_of((Outlier(), Grid(), TileSvd(), Bound(), Pack())),
    "max": pipeline_of((Outlier(), Grid(max_mantissa_bits=3, tables=16), TileSvd(classes=16), Bound(), Pack())),
}
DEFAULT = "default"


def preset(name: str) -> Pipeline:
    """Return the pipeline called ``name``; raises UsageError when there is none."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(f"unknown preset {name!r}", hint=f"presets: {', '.join(PRESETS)}") from None
