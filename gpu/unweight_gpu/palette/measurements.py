"""What was measured of strategies, in a file of the user, and the choice that follows from it."""

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from unweight_gpu import kernels
from unweight_gpu.device.cache import cache_folder, replace_file
from unweight_gpu.palette.format import Layout
from unweight_gpu.palette.strategy import Strategy, bucket_of, default, usable

_VERSION: Final = 1


@cache
def kernel_hash() -> str:
    """Return a digest of the kernels that are chosen from: a measurement is of one version.

    It is part of every key, and a key is made for every product: so it is computed once.
    """
    text = kernels.source("gemm") + kernels.source("palette")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def key_of(device: str, layout: Layout, bucket: int) -> str:
    """Return the name of a measurement; ``device`` names the device and its driver."""
    return f"{device}, kernels {kernel_hash()}, {layout.rows}x{layout.cols}, batch {bucket}"


def cache_file() -> Path:
    """Return where measurements of this user are kept."""
    return cache_folder() / "tuning.json"


@dataclass(slots=True)
class Measurements:
    """Measured seconds by key, in a file that may be missing, damaged or not writable.

    A cache is never worth an error: what is wrong with it goes to ``notes``.
    """

    file: Path
    seconds: dict[str, dict[Strategy, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, file: Path) -> "Measurements":
        """Read the file."""
        found = cls(file)
        try:
            found.seconds = _parsed(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as error:
            found.notes.append(f"{file}: ignored: {error}")
        return found

    def save(self) -> None:
        """Write the file."""
        text = json.dumps({"version": _VERSION, "seconds": self.seconds}, indent=1, sort_keys=True)
        try:
            replace_file(self.file, f"{text}\n".encode())
        except OSError as error:
            self.notes.append(f"{self.file}: measurements are not kept: {error.strerror}")


def _parsed(text: str) -> dict[str, dict[Strategy, float]]:
    """Return the measurements in a file; raises ValueError for what ``save`` never writes."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError(f"not measurements of version {_VERSION}")
    entries = document.get("seconds")
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise ValueError("no table of measurements")
    found = {
        key: {Strategy(name): value for name, value in entry.items()}
        for key, entry in entries.items()
    }
    for key, entry in found.items():
        if not entry:
            raise ValueError(f"{key}: no times")
        for value in entry.values():
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise ValueError(f"{key}: {value!r} is not a time")
    return found


@dataclass(frozen=True, slots=True)
class MeasuredChooser:
    """Takes the fastest strategy that was measured, and the static table's where none was."""

    device: str
    measurements: Measurements

    def best(self, layout: Layout, batch: int, held: frozenset[Strategy]) -> Strategy:
        """Return the choice among the strategies that a matrix is held for."""
        key = key_of(self.device, layout, bucket_of(batch))
        seconds = self.measurements.seconds.get(key, {})
        possible = [s for s in usable(batch, held) if s in seconds]
        if not possible:
            return default(layout, batch, held)
        return min(possible, key=lambda strategy: seconds[strategy])
