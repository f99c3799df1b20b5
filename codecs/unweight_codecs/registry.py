"""Codecs by name: those of this library, and those that packages bring as entry points."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from unweight_codecs.bounded.channel_outlier import ChannelOutlier
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.tile_svd import TileSvd
from unweight_codecs.codec import SLOTS_IN_ORDER, Stage
from unweight_codecs.errors import FormatError, UnweightError, quoted
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.payload.pack import Pack
from unweight_codecs.plugins import OWN_DISTRIBUTION, PluginGroup

# The stages of this library: a new one is a row here.
BUILT_IN_STAGES: tuple[type[Stage], ...] = (
    ExponentWindow,
    HistogramGrid,
    ScaleClasses,
    BitExact,
    ChannelOutlier,
    LevelGrid,
    TileSvd,
    ErrorBound,
    Pack,
)


@dataclass(frozen=True, slots=True)
class CodecInfo:
    """A registered codec and the distribution that brings it."""

    name: str
    slot: str
    summary: str
    distribution: str


def _is_stage(found: object) -> TypeGuard[type[Stage]]:
    return isinstance(found, type) and issubclass(found, Stage)


CODECS: Final = PluginGroup("unweight.codecs", "codec", "a Stage", _is_stage)


def _plugin_names() -> tuple[str, ...]:
    """Return the codecs of all packages; raises UnweightError for a name without a vendor."""
    names = CODECS.names()
    for name in names:
        if "." not in name and CODECS.distribution(name) != OWN_DISTRIBUTION:
            raise UnweightError(
                f"codec {name!r} of {CODECS.distribution(name)}: its name must be vendor.name"
            )
    return names


def codec_class(name: str) -> type[Stage]:
    """Return the codec class called ``name``; raises FormatError when none is installed."""
    for built_in in BUILT_IN_STAGES:  # they need no entry point, so a source tree works too
        if built_in.name == name:
            return built_in
    if name not in _plugin_names():
        raise FormatError(
            f"the file needs the codec {quoted(name)}, which is not installed",
            hint="install the package that brings it; `unweight codecs` lists what is here",
        )
    loaded = CODECS.load(name)
    if loaded.name != name or loaded.slot not in SLOTS_IN_ORDER:
        whose = f"codec {name!r} of {CODECS.distribution(name)}"
        raise UnweightError(f"{whose} calls itself {loaded.name!r}")
    return loaded


def create_codec(name: str, configuration: Mapping[str, Any]) -> Stage:
    """Build a codec from its name and configuration."""
    return codec_class(name).from_dict(configuration)


def list_codecs() -> tuple[CodecInfo, ...]:
    """Return all registered codecs in slot order, then by name."""
    names = {stage.name: OWN_DISTRIBUTION for stage in BUILT_IN_STAGES}
    names |= {name: CODECS.distribution(name) for name in _plugin_names()}
    rows = []
    for name, distribution in names.items():
        stage = codec_class(name)
        summary = (stage.__doc__ or "").strip().split("\n")[0]
        rows.append(CodecInfo(name, stage.slot, summary, distribution))
    return tuple(sorted(rows, key=lambda row: (SLOTS_IN_ORDER.index(row.slot), row.name)))
