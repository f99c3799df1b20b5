"""Accelerators by name, as packages bring them in the group ``unweight.accelerators``."""

from dataclasses import dataclass
from typing import Final, TypeGuard

from unweight_codecs.accelerators.base import Accelerator
from unweight_codecs.plugins import PluginGroup


def _is_accelerator(found: object) -> TypeGuard[Accelerator]:
    return isinstance(found, Accelerator)


ACCELERATORS: Final = PluginGroup(
    "unweight.accelerators",
    "accelerator",
    "an Accelerator",
    _is_accelerator,
    make=lambda accelerator_class: accelerator_class(),
)


@dataclass(frozen=True, slots=True)
class AcceleratorStatus:
    """A registered accelerator and whether it can be used here."""

    name: str
    available: bool
    detail: str


def accelerator_names() -> tuple[str, ...]:
    """Return the names of all registered accelerators, in order."""
    return ACCELERATORS.names()


def create_accelerator(name: str) -> Accelerator:
    """Build the accelerator called ``name``; raises ResourceError when its package does not load.

    Raises UnweightError for what is none, and where two packages bring one of the name.
    """
    return ACCELERATORS.load(name)


def list_accelerators() -> tuple[AcceleratorStatus, ...]:
    """Return all registered accelerators; one that fails to load is reported as unavailable."""
    rows = []
    for name in accelerator_names():
        try:
            available, detail = create_accelerator(name).probe()
        except Exception as error:  # a third-party package may fail in any way
            cause = error.__cause__ or error
            available, detail = False, f"{type(cause).__name__}: {cause}"
        rows.append(AcceleratorStatus(name, available, detail))
    return tuple(rows)
