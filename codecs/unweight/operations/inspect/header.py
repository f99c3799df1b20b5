"""Look into a container: its header, its tensors, and what every stage did to one of them."""

import difflib
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unweight.archive import ArchiveReader, is_archive
from unweight.archive.header import metadata_of
from unweight.containers.base import ContainerIndex, FileSource
from unweight.containers.registry import read_index
from unweight.operations.inspect.stage_facts import facts_of
from unweight.operations.inspect.symbols import count_symbols, entropy_bits, main_stream
from unweight.operations.report import (
    HeaderReport,
    StageReport,
    StagesReport,
    StreamReport,
    TensorReport,
)
from unweight.operations.tensor_rows import STORED, tensor_rows
from unweight_codecs.accelerators import PayloadHead
from unweight_codecs.errors import FormatError, UsageError, quoted
from unweight_codecs.kernels.operands import LevelForm
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import LENGTH_BITS, TABLE_BITS

MAX_BARS = 16  # of the histogram of a stream that is not symbols


def inspect_header(path: Path) -> HeaderReport:
    """Describe any supported container; one that Unweight did not write has format_version 0."""
    with FileSource(path) as source:
        index = read_index(source)
    if not is_archive(index):
        return _plain(path, index)
    with ArchiveReader(path) as archive:
        manifest = archive.manifest
        return HeaderReport(
            path=str(path),
            container=index.container,
            file_bytes=index.size,
            header_bytes=len(index.header),
            format_version=manifest.format[0],
            format_minor=manifest.format[1],
            generator=manifest.generator,
            mode=manifest.mode,
            epsilon=manifest.epsilon,
            source_bytes=manifest.source.size,
            source_sha256=manifest.source_sha256,
            restored_sha256=manifest.expected_sha256,
            source_header_bytes=len(manifest.source.header),
            pipelines=manifest.pipelines,
            metadata=metadata_of(manifest.source),
            tensors=tensor_rows(archive),
        )


def _plain(path: Path, index: ContainerIndex) -> HeaderReport:
    return HeaderReport(
        path=str(path),
        container=index.container,
        file_bytes=index.size,
        header_bytes=len(index.header),
        format_version=0,
        format_minor=0,
        generator="",
        mode="",
        epsilon=0.0,
        source_bytes=index.size,
        source_sha256="",
        restored_sha256="",
        source_header_bytes=len(index.header),
        pipelines=(),
        metadata=metadata_of(index),
        tensors=tuple(
            TensorReport(e.spec.name, e.spec.dtype, e.spec.shape, STORED, e.nbytes, e.nbytes)
            for e in index.tensors
        ),
    )


def largest_coded(path: Path) -> str:
    """Return the name of the largest coded tensor; raises UsageError where none is coded."""
    coded = [tensor for tensor in inspect_header(path).tensors if tensor.pipeline != STORED]
    if not coded:
        raise UsageError(f"{path}: no tensor is coded")
    return max(coded, key=lambda tensor: tensor.source_bytes).name


def inspect_stages(path: Path, tensor: str) -> StagesReport:
    """Decode one coded tensor and describe what every stage did to it."""
    with ArchiveReader(path) as archive:
        rows = {row.name: row for row in tensor_rows(archive)}
        if tensor not in rows:
            near = difflib.get_close_matches(tensor, rows, n=3, cutoff=0.3)
            hint = f"did you mean {', '.join(map(quoted, near))}?" if near else ""
            raise UsageError(f"{path}: no tensor {quoted(tensor)}", hint=hint)
        if not archive.is_coded(tensor):
            raise FormatError(
                f"{path}: tensor {quoted(tensor)} is stored unchanged: no stage coded it"
            )
        source, here = next(pair for pair in archive.tensors() if pair[0].spec.name == tensor)
        head = archive.head(source, here)
        counts = count_symbols(archive, head)
        return _stages_report(path, rows[tensor], head, counts)


def _stages_report(
    path: Path, row: TensorReport, head: PayloadHead, counts: NDArray[np.int64]
) -> StagesReport:
    model = head.model
    main = main_stream(model)
    streams = tuple(
        _stream_report(head, k, name, bits, counts if name == main else None)
        for k, (name, bits) in enumerate(model.streams().items())
    )
    total, elements = counts.sum(axis=0), max(1, model.spec.elements)
    return StagesReport(
        path=str(path),
        tensor=row,
        bits_per_element_source=8 * row.source_bytes / elements,
        bits_per_element_bound=sum(stream.entropy_bits * stream.values for stream in streams)
        / elements,
        bits_per_element_coded=8 * row.coded_bytes / elements,
        overhead_bytes=row.coded_bytes - sum(stream.coded_bytes for stream in streams),
        stages=tuple(
            StageReport(
                stage.name,
                stage.to_dict()["configuration"],
                dict(facts_of(stage.slot, head, total, row)),
            )
            for stage in head.pipeline.stages
        ),
        streams=streams,
        histogram=_histogram(model, total),
    )


def _stream_report(
    head: PayloadHead, k: int, name: str, bits: int, counts: NDArray[np.int64] | None
) -> StreamReport:
    entries = head.directory["segments"][:, k]
    size = int((entries & ((1 << LENGTH_BITS) - 1)).sum())
    values = head.model.layout.words * head.model.layout.per_word(name)
    if name == "escape":
        values = size * 8 // bits
    names, numbers = head.model.coder_names, entries >> (LENGTH_BITS + TABLE_BITS)
    coders = Counter(names[number] for number in numbers.tolist())
    achieved = 8 * size / values if values else 0.0
    entropy = entropy_bits(counts) if counts is not None else achieved
    return StreamReport(name, bits, values, entropy, achieved, size, dict(coders))


def _histogram(model: TensorModel, counts: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    if not model.layout.is_float:
        bits = model.streams()[main_stream(model)]
        step = max(1, (1 << bits) // MAX_BARS)
        groups = counts[: 1 << bits].reshape(-1, step).sum(axis=1)
        starts = range(0, 1 << bits, step)
        labels = [f"{k}-{k + step - 1}" if step > 1 else str(k) for k in starts]
        return tuple((label, int(n)) for label, n in zip(labels, groups, strict=True))
    if model.bounded:
        labels = [*_level_labels(model.bounded.form), "escape"]
        return tuple((label, int(n)) for label, n in zip(labels, counts, strict=False))
    merged = 1 << model.top_bits
    used = (model.window + (model.window < 1 << model.layout.exponent_bits)) * merged
    by_exponent = counts[:used].reshape(-1, merged).sum(axis=1)
    labels = [str(model.base + k) for k in range(model.window)] + ["escape"]
    return tuple((label, int(n)) for label, n in zip(labels, by_exponent, strict=False))


def _level_labels(form: LevelForm) -> list[str]:
    """Return what each symbol below the limit stands for: a level, or as many as have low bits."""
    if form.table is not None:
        return [str(level) for level in form.table.tolist()]
    number = 1 << form.low_bits
    firsts = range(-form.bias, form.limit * number - form.bias, number)
    return [f"{first} to {first + number - 1}" if number > 1 else str(first) for first in firsts]
