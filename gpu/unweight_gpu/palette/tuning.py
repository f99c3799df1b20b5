"""Measuring which strategy is the fastest for a matrix and a number of rows of activations."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from unweight_gpu.device.timing import Timer, Work, copies_of
from unweight_gpu.palette.format import Layout
from unweight_gpu.palette.linear import LinearBackend, PaletteLinear
from unweight_gpu.palette.measurements import Measurements, key_of
from unweight_gpu.palette.strategy import Strategy, bucket_of, usable

_SEED: Final = 20260417


@dataclass(frozen=True, slots=True)
class TuningRow:
    """What was measured for a matrix [rows, columns] and ``batch`` rows of activations.

    Attributes:
        rows: Rows of the matrix.
        columns: Columns of the matrix.
        batch: Rows of activations.
        seconds: The median time of every strategy that can take them.
        best: The fastest strategy.
        cached: Whether it was measured earlier.
    """

    rows: int
    columns: int
    batch: int
    seconds: Mapping[str, float]
    best: str
    cached: bool


@dataclass(frozen=True, slots=True)
class TuningReport:
    """What ``tune`` found, in the order of shapes and batches.

    Attributes:
        device: Name of the device and its driver.
        rows: The measurements.
        notes: What is wrong with the file that keeps them.
    """

    device: str
    rows: tuple[TuningRow, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)


def tune(
    shapes: Iterable[tuple[int, int]],
    batches: Iterable[int],
    backend: LinearBackend,
    timer: Timer,
    device: str,
    file: Path,
) -> TuningReport:
    """Measure every strategy for matrices [rows, cols] and batches, and keep the results.

    Batches are measured at the size of their bucket. What the file has already is not measured
    again. Raises UsageError for an empty shape.
    """
    measurements = Measurements.load(file)
    buckets = sorted({bucket_of(batch) for batch in batches})
    rows = []
    for layout in dict.fromkeys(Layout(*shape) for shape in shapes):
        copies: list[PaletteLinear] = []
        for bucket in buckets:
            key = key_of(device, layout, bucket)
            is_cached = key in measurements.seconds
            if not is_cached:
                copies = copies or _copies(backend, layout)
                measurements.seconds[key] = _measure(copies, bucket, timer)
            rows.append(_row(layout, bucket, measurements.seconds[key], is_cached))
    if not all(row.cached for row in rows):
        measurements.save()
    return TuningReport(device, tuple(rows), tuple(measurements.notes))


def _row(layout: Layout, batch: int, seconds: Mapping[Strategy, float], cached: bool) -> TuningRow:
    best = min(seconds, key=lambda strategy: seconds[strategy])
    by_name = {str(strategy): time for strategy, time in seconds.items()}
    return TuningRow(layout.rows, layout.cols, batch, by_name, str(best), cached)


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


def _run(layer: PaletteLinear, x: object, out: object, strategy: Strategy) -> Work:
    return lambda: layer.matmul(x, "BF16", strategy=strategy, out=out)
