"""From the name of a device to what decodes there."""

from collections.abc import Callable
from typing import Final

from unweight_codecs.accelerators import registry
from unweight_codecs.accelerators.base import Engine
from unweight_codecs.accelerators.cpu import CPU, CpuEngine
from unweight_codecs.errors import Parameter, Phrase, ResourceError, UsageError, quoted

AUTO: Final = "auto"


def no_note(note: str) -> None:
    """Drop a note."""


def open_engine(device: str, threads: int, note: Callable[[str], None] = no_note) -> Engine:
    """Return what decodes on ``device``: ``cpu``, ``auto``, or the name of an accelerator.

    ``auto`` takes the first accelerator that can be used, and the processor with a note why if none
    can; ``cuda:1`` is the second device of its kind. Raises UsageError for a name that says
    nothing, ResourceError for a device that cannot be used.
    """
    if device == CPU:
        return CpuEngine(threads)
    found = find_accelerator(device, lambda reason: note(f"decoding on the processor: {reason}"))
    if found is None:
        return CpuEngine(threads)
    name, number = found
    accelerator = registry.create_accelerator(name)
    if device != AUTO:
        return accelerator.open(number, threads, None)
    try:
        return accelerator.open(number, threads, note)
    except ResourceError as error:
        note(f"decoding on the processor: {error.message}")
        return CpuEngine(threads)


def find_accelerator(
    device: str, why_not: Callable[[str], None] = no_note
) -> tuple[str, int] | None:
    """Return the name of the accelerator that ``device`` means, and the number of its device.

    For ``auto`` that is the first that can be used, or None; ``why_not`` is told the reason. Raises
    UsageError for a name that says nothing.
    """
    if device == AUTO:
        return _first_usable(why_not)
    name, separator, number = str(device).partition(":")  # callers may pass any object
    if name not in registry.accelerator_names() or (separator and not _is_number(number)):
        names = ", ".join((AUTO, CPU, *(f"{n}, {n}:N" for n in registry.accelerator_names())))
        raise UsageError(
            Phrase(Parameter("device"), f": no such device: {quoted(device)}"),
            hint=f"one of {names}",
        )
    return name, int(number or 0)


def _first_usable(why_not: Callable[[str], None]) -> tuple[str, int] | None:
    statuses = registry.list_accelerators()
    for status in statuses:
        if status.available:
            return status.name, 0
    reasons = [f"{status.name}: {status.detail}" for status in statuses]
    why_not("; ".join(reasons) or "no accelerator is installed")
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 3
