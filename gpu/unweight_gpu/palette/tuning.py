"""Which strategy is the fastest for a matrix and a batch: measured once, then remembered."""

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from unweight_codecs.accelerators import TuningReport, TuningRow
from unweight_gpu import kernels
from unweight_gpu.device.cache import cache_folder, replace_file
from unweight_gpu.device.timing import Run, Timer, copies_of
from unweight_gpu.palette.format import Layout
from unweight_gpu.palette.linear import LinearBackend, PaletteLinear
from unweight_gpu.palette.strategy import Strategy, bucket_of, default, usable

Seconds = Mapping[Strategy, float]

_VERSION: Final = 1
_SEED: Final = 20260417


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
                raise ValueError(f"{key}: {value!r} is no time")
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


@dataclass(frozen=True, slots=True)
class Tuned:
    """One line of a report: median seconds of each strategy; ``is_cached`` if they are older."""

    layout: Layout
    batch: int
    seconds: Seconds
    is_cached: bool

    @property
    def best(self) -> Strategy:
        """The fastest strategy."""
        return min(self.seconds, key=lambda strategy: self.seconds[strategy])


@dataclass(frozen=True, slots=True)
class Report:
    """What ``tune`` found, in the order of shapes and batches."""

    device: str
    lines: tuple[Tuned, ...]
    notes: tuple[str, ...]

    def summary(self) -> TuningReport:
        """Return it as accelerators report it."""
        rows = (
            TuningRow(
                line.layout.rows,
                line.layout.cols,
                line.batch,
                {str(strategy): seconds for strategy, seconds in line.seconds.items()},
                str(line.best),
                line.is_cached,
            )
            for line in self.lines
        )
        return TuningReport(self.device, tuple(rows), self.notes)


def tune(
    shapes: Iterable[tuple[int, int]],
    batches: Iterable[int],
    backend: LinearBackend,
    timer: Timer,
    device: str,
    file: Path,
) -> Report:
    """Measure every strategy for matrices [rows, cols] and batches, and keep the results.

    Batches are measured at the size of their bucket. What the file has already is not measured
    again. Raises UsageError for an empty shape.
    """
    measurements = Measurements.load(file)
    buckets = sorted({bucket_of(batch) for batch in batches})
    lines = []
    for layout in dict.fromkeys(Layout(*shape) for shape in shapes):
        copies: list[PaletteLinear] = []
        for bucket in buckets:
            key = key_of(device, layout, bucket)
            is_cached = key in measurements.seconds
            if not is_cached:
                copies = copies or _copies(backend, layout)
                measurements.seconds[key] = _measure(copies, bucket, timer)
            lines.append(Tuned(layout, bucket, measurements.seconds[key], is_cached))
    if not all(line.is_cached for line in lines):
        measurements.save()
    return Report(device, tuple(lines), tuple(measurements.notes))


def _copies(backend: LinearBackend, layout: Layout) -> list[PaletteLinear]:
    """Return enough layers with normally distributed weights that none is found in a cache."""
    rng = np.random.default_rng(_SEED)
    values = rng.standard_normal((layout.rows, layout.cols), np.float32)
    words = (values.view(np.uint32) >> 16).astype(np.uint16)
    return [
        backend.linear(backend.device.array(words), keep_words=True)
        for _ in range(copies_of(words.nbytes))
    ]


def _measure(copies: Sequence[PaletteLinear], batch: int, timer: Timer) -> dict[Strategy, float]:
    backend, layout = copies[0].backend, copies[0].layout
    rng = np.random.default_rng(_SEED + batch)
    values = rng.standard_normal((batch, layout.cols), np.float32)
    x = backend.device.array((values.view(np.uint32) >> 16).astype(np.uint16))
    out = backend.device.empty((batch, layout.rows), np.uint16)
    return {
        strategy: statistics.median(timer.samples([_run(c, x, out, strategy) for c in copies]))
        for strategy in usable(batch, copies[0].held)
    }


def _run(layer: PaletteLinear, x: object, out: object, strategy: Strategy) -> Run:
    return lambda: layer.matmul(x, "BF16", strategy=strategy, out=out)
