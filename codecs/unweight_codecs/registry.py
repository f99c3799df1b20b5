"""Codecs and accelerators by name, found through entry points. The only module that loads them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, cast

from unweight_codecs.bounded.channel_outlier import ChannelOutlier
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.tile_svd import TileSvd
from unweight_codecs.codec import SLOTS_IN_ORDER, Stage
from unweight_codecs.errors import FormatError, ResourceError, UnweightError, quoted
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.payload.pack import Pack

CODEC_GROUP = "unweight.codecs"
ACCELERATOR_GROUP = "unweight.accelerators"
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
_OWN_DISTRIBUTION = "unweight"


@dataclass(frozen=True, slots=True)
class CodecInfo:
    """A registered codec and the distribution that brings it."""

    name: str
    slot: str
    summary: str
    distribution: str


@dataclass(frozen=True, slots=True)
class AcceleratorStatus:
    """A registered accelerator and whether it can be used here."""

    name: str
    available: bool
    detail: str


def _distribution(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"


@functools.cache
def _points() -> dict[str, metadata.EntryPoint]:
    found: dict[str, metadata.EntryPoint] = {}
    for point in metadata.entry_points(group=CODEC_GROUP):
        other = found.get(point.name)
        if other is not None and (other.value, _distribution(other)) != (
            point.value,
            _distribution(point),
        ):
            raise UnweightError(
                f"codec {point.name!r} is registered by both {_distribution(other)} and "
                f"{_distribution(point)}",
                hint="uninstall one of them",
            )
        if "." not in point.name and _distribution(point) != _OWN_DISTRIBUTION:
            raise UnweightError(
                f"codec {point.name!r} of {_distribution(point)}: its name must be vendor.name"
            )
        found[point.name] = point
    return found


def codec_class(name: str) -> type[Stage]:
    """Return the codec class called ``name``; raises FormatError when none is installed."""
    for built_in in BUILT_IN_STAGES:  # they need no entry point, so a source tree works too
        if built_in.name == name:
            return built_in
    point = _points().get(name)
    if point is None:
        raise FormatError(
            f"the file needs the codec {quoted(name)}, which is not installed",
            hint="install the package that brings it; `unweight codecs` lists what is here",
        )
    try:
        loaded = point.load()
    except Exception as error:  # a third-party package may fail in any way
        raise ResourceError(
            f"codec {quoted(name)} of {_distribution(point)} does not load: {quoted(error)}",
            hint="reinstall the package that brings it",
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Stage)):
        raise UnweightError(f"codec {name!r} of {_distribution(point)} is not a Stage")
    if loaded.name != name or loaded.slot not in SLOTS_IN_ORDER:
        raise UnweightError(
            f"codec {name!r} of {_distribution(point)} calls itself {loaded.name!r}"
        )
    return loaded


def create_codec(name: str, configuration: Mapping[str, Any]) -> Stage:
    """Build a codec from its name and configuration."""
    return codec_class(name).from_dict(configuration)


def list_codecs() -> tuple[CodecInfo, ...]:
    """Return all registered codecs in slot order, then by name."""
    names = {stage.name: _OWN_DISTRIBUTION for stage in BUILT_IN_STAGES}
    names |= {name: _distribution(point) for name, point in _points().items()}
    rows = []
    for name, distribution in names.items():
        stage = codec_class(name)
        summary = (stage.__doc__ or "").strip().split("\n")[0]
        rows.append(CodecInfo(name, stage.slot, summary, distribution))
    return tuple(sorted(rows, key=lambda row: (SLOTS_IN_ORDER.index(row.slot), row.name)))


def accelerator_names() -> tuple[str, ...]:
    """Return the names of all registered accelerators, in order."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=ACCELERATOR_GROUP)}))


def create_accelerator(name: str) -> object:
    """Build the accelerator called ``name``; raises ResourceError when its package does not load.

    What it must offer is said in ``accelerators.base``.
    """
    point = next(p for p in metadata.entry_points(group=ACCELERATOR_GROUP) if p.name == name)
    try:
        return cast("object", point.load()())
    except Exception as error:  # a third-party package may fail in any way
        raise ResourceError(
            f"accelerator {quoted(name)} does not load: {type(error).__name__}: {error}",
            hint="reinstall the package that brings it",
        ) from error


def list_accelerators() -> tuple[AcceleratorStatus, ...]:
    """Return all registered accelerators; one that fails to load is reported as unavailable."""
    rows = []
    for name in accelerator_names():
        try:
            available, detail = cast("Any", create_accelerator(name)).probe()
        except Exception as error:  # a third-party package may fail in any way
            cause = error.__cause__ or error
            available, detail = False, f"{type(cause).__name__}: {cause}"
        rows.append(AcceleratorStatus(name, available, detail))
    return tuple(rows)
