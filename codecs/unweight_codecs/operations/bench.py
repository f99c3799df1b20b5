"""Rates of the codec on a file's own tensors: in memory, one thread, no file output."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unweight_codecs.archive.header import check_not_archive
from unweight_codecs.archive.reader import SPAN_CHUNKS
from unweight_codecs.archive.writer import MIN_CODED_BYTES
from unweight_codecs.codec import Block
from unweight_codecs.containers.base import FileSource
from unweight_codecs.containers.sniff import read_index
from unweight_codecs.errors import UsageError
from unweight_codecs.kernels import active_kernel
from unweight_codecs.kernels.base import Bytes
from unweight_codecs.layouts import layout_of
from unweight_codecs.operations.files import open_job
from unweight_codecs.operations.progress import Progress
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import preset
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec

MAX_BYTES = 1 << 30  # measured in memory: more would not be more telling


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One preset: sizes, and CPU seconds (median of the repeats) for the whole input.

    Encoding includes the survey and the fit of the model, not the check; ``check_cpu_seconds`` is
    what comparing the decoded result with the original adds, ``decode_cpu_seconds`` what decoding
    takes with all checksums.
    """

    preset: str
    source_bytes: int
    coded_bytes: int
    encode_cpu_seconds: float
    check_cpu_seconds: float
    decode_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What ``bench`` measured."""

    source: str
    kernel: str
    repeats: int
    rows: tuple[BenchRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)


@dataclass(slots=True)
class Coded:
    """A tensor coded in memory; ``size`` is what it takes in a file."""

    spec: TensorSpec
    size: int
    head: bytes
    blocks: list[Block]


def bench(
    source: Path, presets: tuple[str, ...], *, repeats: int, progress: Progress
) -> BenchReport:
    """Measure presets on the tensors of a file or directory."""
    if repeats < 1:
        raise UsageError(f"--repeats must be at least 1, not {repeats}")
    pipelines = [(name, preset(name)) for name in presets]
    tensors = _load(source)
    total = sum(data.size for _, data in tensors)
    progress.begin("bench", total * len(pipelines) * repeats)
    rows = []
    for name, pipeline in pipelines:
        times: list[tuple[float, float, float]] = []
        size = 0
        for _ in range(repeats):
            size, *seconds = _measure(pipeline, tensors)
            times.append((seconds[0], seconds[1], seconds[2]))
            progress.advance(total)
        encode, check, decode = (statistics.median(column) for column in zip(*times, strict=True))
        rows.append(BenchRow(name, total, size, encode, check, decode))
    progress.finish()
    return BenchReport(str(source), active_kernel(), repeats, tuple(rows))


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


def _measure(
    pipeline: Pipeline, tensors: list[tuple[TensorSpec, Bytes]]
) -> tuple[int, float, float, float]:
    size, encode, check, decode = 0, 0.0, 0.0, 0.0
    for spec, data in tensors:
        if data.size < MIN_CODED_BYTES:
            size += data.size
            continue
        start = time.process_time()
        coded = encode_tensor(pipeline, spec, data)
        encode += time.process_time() - start
        if coded is None:
            size += data.size
            continue
        size += coded.size
        start = time.process_time()
        restored = decode_tensor(pipeline, coded)
        middle = time.process_time()
        same = all(
            np.array_equal(a, block.words) for a, block in zip(restored, coded.blocks, strict=True)
        )
        check += time.process_time() - start
        decode += middle - start
        if not same:
            raise AssertionError(f"tensor {spec.name!r} does not decode to its original")
    return size, encode, check, decode


def encode_tensor(
    pipeline: Pipeline, spec: TensorSpec, data: Bytes, epsilon: float = 0.0
) -> Coded | None:
    """Code a tensor in memory, without checking; None when it would not shrink.

    ``epsilon`` is the error bound of a pipeline that is not exact.
    """
    found = encode_smallest([(pipeline, epsilon)], spec, data)
    return found[1] if found else None


def encode_smallest(
    choices: Sequence[tuple[Pipeline, float]], spec: TensorSpec, data: Bytes
) -> tuple[Pipeline, Coded] | None:
    """Code a tensor with the pipeline that makes it smallest; None when it would not shrink.

    ``choices`` are pipelines for chunks of one size, each with its error bound.
    """
    layout = layout_of(spec)

    def read(first: int, count: int) -> Bytes:
        return data[first * layout.word_bytes : (first + count) * layout.word_bytes]

    view, _ = survey(spec, read, choices[0][0].chunk_words(layout), lambda words: None)
    fitted = [(pipeline, pipeline.fit(view, epsilon)) for pipeline, epsilon in choices]
    expected = [
        pipeline.head_length(model) + model.estimated_bits // 8 for pipeline, model in fitted
    ]
    if min(expected) >= data.size:
        return None
    pipeline, model = fitted[expected.index(min(expected))]
    blocks = []
    step = SPAN_CHUNKS * model.chunk_words
    for first in range(0, layout.words, step):
        count = min(step, layout.words - first)
        block = Block(first, count, read(first, count))
        pipeline.encode(block, model)
        block.drop_streams()
        blocks.append(block)
    head = pipeline.write_head(model, np.concatenate([block.directory for block in blocks]))
    size = len(head) + sum(block.coded.size for block in blocks)
    return (pipeline, Coded(spec, size, head, blocks)) if size < data.size else None


def decode_tensor(pipeline: Pipeline, coded: Coded) -> list[Bytes]:
    """Decode what ``encode_tensor`` returned, span by span, with all checks."""
    model, _ = pipeline.read_head(coded.head, coded.spec, coded.size)
    restored = []
    for block in coded.blocks:
        empty = block.copy_empty()
        pipeline.decode(empty, model)
        restored.append(empty.words)
    return restored
