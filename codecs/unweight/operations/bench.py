"""Rates of the codec on a file's own tensors, in memory: of one thread, and of a device."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unweight.archive.header import check_not_archive
from unweight.archive.writer import MIN_CODED_BYTES
from unweight.containers.base import FileSource
from unweight.containers.registry import read_index
from unweight.operations.files import open_job
from unweight.operations.progress import Progress
from unweight_codecs.accelerators import CPU, CpuEngine, Engine, no_note, open_engine
from unweight_codecs.errors import IntegrityError, UsageError, quoted
from unweight_codecs.kernels import active_kernel
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import preset
from unweight_codecs.tensor_codec import EncodedTensor, decode_tensor, encode_tensor, spans_of
from unweight_codecs.tensor_spec import TensorSpec

MAX_BYTES = 1 << 30  # measured in memory: more would not be more telling

Tensors = Sequence[tuple[TensorSpec, Bytes]]


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One preset: sizes, and CPU seconds (median of the repeats) for the whole input.

    Encoding includes the survey and the fit of the model, not the check; ``check_cpu_seconds`` is
    what comparing the decoded result with the original adds, ``decode_cpu_seconds`` what decoding
    takes with all checksums. ``device_seconds`` is what a device takes to decode ``device_bytes``,
    those of all coded tensors, from coded bytes in the memory of the host to words in it, by the
    clock; 0 where no device is measured.
    """

    preset: str
    source_bytes: int
    coded_bytes: int
    encode_cpu_seconds: float
    check_cpu_seconds: float
    decode_cpu_seconds: float
    device_bytes: int = 0
    device_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What ``bench`` measured. ``device`` is "" where none was."""

    source: str
    kernel: str
    repeats: int
    rows: tuple[BenchRow, ...]
    device: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)


@dataclass(slots=True)
class _PresetTimes:
    """What one run of a preset took; see ``BenchRow``."""

    size: int = 0
    encode: float = 0.0
    check: float = 0.0
    decode: float = 0.0
    device_bytes: int = 0
    device: float = 0.0


def bench(
    source: Path,
    presets: tuple[str, ...],
    *,
    repeats: int,
    progress: Progress,
    device: str = CPU,
    note: Callable[[str], None] = no_note,
) -> BenchReport:
    """Measure presets on the tensors of a file or directory.

    With a ``device`` other than the processor, its decoding is measured as well.
    """
    if repeats < 1:
        raise UsageError(f"must be at least 1, not {repeats}", parameter="repeats")
    pipelines = [(name, preset(name)) for name in presets]
    with open_engine(device, 1, note) as engine:
        used = None if isinstance(engine, CpuEngine) else engine
        tensors = _load(source)
        total = sum(data.size for _, data in tensors)
        progress.begin("bench", total * len(pipelines) * repeats)
        rows = []
        for name, pipeline in pipelines:
            runs = []
            for _ in range(repeats):
                runs.append(_measure(pipeline, tensors, used))
                progress.advance(total)
            rows.append(_row(name, total, runs))
        progress.finish()
        return BenchReport(
            str(source), active_kernel(), repeats, tuple(rows), used.name if used else ""
        )


def _row(name: str, total: int, runs: list[_PresetTimes]) -> BenchRow:
    last = runs[-1]
    return BenchRow(
        name,
        total,
        last.size,
        statistics.median(run.encode for run in runs),
        statistics.median(run.check for run in runs),
        statistics.median(run.decode for run in runs),
        last.device_bytes,
        statistics.median(run.device for run in runs),
    )


def _load(source: Path) -> list[tuple[TensorSpec, Bytes]]:
    tensors, total = [], 0
    for path, _ in open_job(source).models:
        with FileSource(path) as file:
            index = read_index(file)
            check_not_archive(index, path)
            for entry in index.tensors:
                total += entry.nbytes
                if total > MAX_BYTES:
                    raise UsageError(
                        f"{source}: more than {MAX_BYTES >> 20} MiB of tensors",
                        hint="bench works in memory: give it one shard",
                    )
                data = np.frombuffer(file.read_at(entry.offset, entry.nbytes), np.uint8)
                tensors.append((entry.spec, data))
    return tensors


def _measure(pipeline: Pipeline, tensors: Tensors, engine: Engine | None) -> _PresetTimes:
    found, kept = _PresetTimes(), list[tuple[EncodedTensor, Bytes]]()
    for spec, data in tensors:
        coded = None
        if data.size >= MIN_CODED_BYTES:
            start = time.process_time()
            coded = encode_tensor(pipeline, spec, data)
            found.encode += time.process_time() - start
        if coded is None:
            found.size += data.size
            continue
        found.size += coded.size
        start = time.process_time()
        restored = decode_tensor(pipeline, coded)
        middle = time.process_time()
        _require(
            spec.name,
            all(
                np.array_equal(part, span.words)
                for part, span in zip(restored, coded.spans, strict=True)
            ),
        )
        found.check += time.process_time() - start
        found.decode += middle - start
        if engine is not None:
            kept.append((coded, data))
    if engine is not None:
        _measure_device(pipeline, kept, engine, found)
    return found


def _measure_device(
    pipeline: Pipeline, kept: list[tuple[EncodedTensor, Bytes]], engine: Engine, found: _PresetTimes
) -> None:
    start = time.perf_counter()
    spans = (spans_of(pipeline, coded, engine.span_chunks) for coded, _ in kept)
    decoded = engine.decode(spans)
    for (coded, data), pieces in zip(kept, decoded, strict=True):
        at = 0
        for piece in pieces:
            pause = time.perf_counter()
            size = piece.words.size
            _require(coded.spec.name, np.array_equal(piece.words, data[at : at + size]))
            at += size
            start += time.perf_counter() - pause  # comparing is not decoding
        found.device_bytes += at
    found.device = time.perf_counter() - start


def _require(name: str, same: bool) -> None:
    if not same:
        raise IntegrityError(
            f"tensor {quoted(name)} does not decode to its original",
            hint="this is a bug or faulty hardware: please report it",
        )
