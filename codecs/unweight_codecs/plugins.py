"""What other packages bring, by entry-point group and name. The only module that loads them."""

import functools
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Final, Generic, TypeGuard, TypeVar

from unweight_codecs.errors import ResourceError, UnweightError, quoted

OWN_DISTRIBUTION: Final = "unweight"
Plugin = TypeVar("Plugin")


@functools.cache
def entry_points(group: str) -> Mapping[str, tuple[metadata.EntryPoint, ...]]:
    """Return the entry points of a group by name.

    There are several of a name where distributions disagree about it. One that is found twice, as
    an editable install and in the source tree, counts once.
    """
    found: dict[str, dict[tuple[str, str], metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=group):
        found.setdefault(point.name, {})[point.value, _distribution(point)] = point
    return {name: tuple(points.values()) for name, points in found.items()}


class PluginGroup(Generic[Plugin]):
    """The entry points of one group, each of which leads to a ``Plugin``.

    Args:
        group: Name of the group.
        noun: What one of them is called in messages.
        kind: What it must be, in messages: ``a Stage``.
        accepts: Whether an object is that.
        make: Gives the plugin from what the entry point names, if that is not the plugin itself.
    """

    def __init__(
        self,
        group: str,
        noun: str,
        kind: str,
        accepts: Callable[[object], TypeGuard[Plugin]],
        make: Callable[[Any], object] = lambda loaded: loaded,
    ) -> None:
        self.group = group
        self._noun, self._kind, self._accepts, self._make = noun, kind, accepts, make

    def names(self) -> tuple[str, ...]:
        """Return the names of all plugins, in order."""
        return tuple(sorted(entry_points(self.group)))

    def distribution(self, name: str) -> str:
        """Return the name of the distribution that brings a plugin.

        Raises UnweightError if there are several. ``name`` must be one of ``names``.
        """
        return _distribution(self._point(name))

    def load(self, name: str) -> Plugin:
        """Return a plugin. ``name`` must be one of ``names``.

        Raises ResourceError if its package does not load, UnweightError if several distributions
        bring it or if it is something else.
        """
        point = self._point(name)
        whose = f"{self._noun} {quoted(name)} of {_distribution(point)}"
        try:
            plugin = self._make(point.load())
        except Exception as error:  # a third-party package may fail in any way
            raise ResourceError(
                f"{whose} does not load: {quoted(error)}",
                hint="reinstall the package that brings it",
            ) from error
        if not self._accepts(plugin):
            raise UnweightError(f"{whose} is not {self._kind}")
        return plugin

    def _point(self, name: str) -> metadata.EntryPoint:
        first, *others = entry_points(self.group)[name]
        if others:
            raise UnweightError(
                f"{self._noun} {name!r} is registered by both {_distribution(first)} and "
                f"{_distribution(others[0])}",
                hint="uninstall one of them",
            )
        return first


def _distribution(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"
