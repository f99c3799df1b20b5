"""Compress a container file or a model directory, verifying every chunk as it is written."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import xxhash

from unweight.archive import ArchiveWriter
from unweight.archive.reader import STORED_SPAN
from unweight.archive.writer import MIN_CODED_BYTES
from unweight.containers.base import ContainerIndex, FileSource, TensorEntry
from unweight.manifest import CodedTensor
from unweight.operations.compression_plan import (
    CompressionPlan,
    CompressOptions,
    plan_compression,
)
from unweight.operations.files import target_directory
from unweight.operations.progress import Progress
from unweight.operations.report import CheckKind, FileReport, OperationReport, TensorReport
from unweight.operations.run import OperationRun
from unweight.operations.tensor_rows import STORED
from unweight.output import atomic_file, check_space
from unweight.recipe import PipelineChoice, Recipe
from unweight_codecs.bounded.float_words import may_change
from unweight_codecs.codec import Reader
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError, quoted
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.layouts import layout_of
from unweight_codecs.parallel import Workers
from unweight_codecs.presets import SMALLEST
from unweight_codecs.span import CheckResult
from unweight_codecs.survey import survey
from unweight_codecs.tensor_codec import TensorFit, encode_spans, fit_smallest

__all__ = ["CompressOptions", "compress", "compress_planned"]


def compress(
    source: Path, target: Path | None, options: CompressOptions, progress: Progress
) -> OperationReport:
    """Plan and compress; see ``plan_compression`` and ``compress_planned``."""
    return compress_planned(plan_compression(source, target, options), progress)


def compress_planned(plan: CompressionPlan, progress: Progress) -> OperationReport:
    """Do what a plan says; nothing appears under the name of its target unless all went well.

    Raises IntegrityError when a file has changed since it was planned.
    """
    job, target = plan.job, plan.target
    run = OperationRun("compress", job.source)
    with Workers(plan.options.threads) as workers:
        source_bytes = sum(index.size for index in plan.indexes) + job.carried_bytes
        check_space(target, job.carried_bytes)
        progress.begin("compress", source_bytes - job.carried_bytes)
        coder = _FileCoder(plan.recipe, workers, progress, plan.options.force)
        files = []
        with target_directory(job, target, force=plan.options.force) as folder:
            for (path, name), index in zip(job.models, plan.indexes, strict=True):
                output = folder / name if job.is_directory else target
                shown = target / name if job.is_directory else target
                files.append(coder.compress(path, index, output, shown))
            progress.finish()
        return run.report(
            target,
            files,
            carried_files=len(job.carried),
            carried_bytes=job.carried_bytes,
            source_bytes=source_bytes,
            target_bytes=sum(file.target_bytes for file in files) + job.carried_bytes,
            threads=workers.threads,
            checked=CheckKind.WRITTEN,
            notes=_notes(plan),
        )


def _notes(plan: CompressionPlan) -> tuple[str, ...]:
    """Say which rules had no effect: a pattern may be misspelt, and a tensor left unprotected."""
    path = plan.options.recipe
    idle = plan.recipe.idle_rules(plan.tensor_names)
    return tuple(f"{path}: rule {n}: no tensor follows it" for n in idle)


@dataclass(slots=True)
class _FileJob:
    """One file being compressed. Each byte counts half when read and half when coded."""

    source: FileSource
    writer: ArchiveWriter
    recipe: Recipe
    workers: Workers
    progress: Progress
    sha256: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    restored: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def observe(self, data: Bytes | bytes) -> None:
        """Take note of source bytes, in file order."""
        view = data if isinstance(data, bytes) else data.data
        self.sha256.update(view)
        if self.recipe.is_bounded:
            self.restored.update(view)
        self.progress.advance(len(data) // 2)

    def tensor(self, entry: TensorEntry) -> str:
        """Code or store one tensor; returns the name of its pipeline."""
        choices = self.recipe.choices_for(entry.spec.name)
        if not choices or entry.nbytes < MIN_CODED_BYTES:
            self._store(entry, self._digest(entry, self.observe))
            return STORED
        if not may_change(entry.spec):
            choices = choices[:1]
        before = self.restored.copy()
        chunk_words = choices[-1].pipeline.chunk_words(layout_of(entry.spec))
        view, digest = survey(
            entry.spec, self._reader(entry), chunk_words, self.observe, self.workers.ordered
        )
        fit = fit_smallest(view, [(choice.pipeline, choice.epsilon) for choice in choices])
        chosen = choices[fit.number]
        if not chosen.pipeline.is_exact:
            self.restored = before
        if fit.expected_bytes < entry.nbytes and self._code(entry, chosen, fit, digest):
            return chosen.pipeline.name
        if not chosen.pipeline.is_exact:
            self._digest(entry, self.restored.update)
        self._store(entry, digest)
        return STORED

    def _digest(self, entry: TensorEntry, sink: Callable[[bytes], None]) -> str:
        """Read a tensor in order; ``sink`` gets every piece."""
        digest = xxhash.xxh3_64()
        for start in range(0, entry.nbytes, STORED_SPAN):
            data = self.source.read_at(entry.offset + start, min(STORED_SPAN, entry.nbytes - start))
            digest.update(data)
            sink(data)
        return digest.hexdigest()

    def _reader(self, entry: TensorEntry) -> Reader:
        size = layout_of(entry.spec).word_bytes

        def read(first: int, count: int) -> Bytes:
            words = buffers.empty(count * size)
            self.source.read_into(entry.offset + first * size, words.data)
            return words

        return read

    def _code(
        self, entry: TensorEntry, chosen: PipelineChoice, fit: TensorFit, digest: str
    ) -> bool:
        pipeline = fit.pipeline
        self.writer.begin(pipeline, fit.model)
        done, again, restored = 0, xxhash.xxh3_64(), self.restored.copy()
        result = _Result()
        try:
            for span in encode_spans(fit, self._reader(entry), self.workers.ordered):
                again.update(span.words.data)
                self.writer.add(span)
                if span.checked and not pipeline.is_exact:
                    result.add(span.checked)
                    restored.update(span.checked.words.data)
                    span.checked = None
                advanced = span.words.size - span.words.size // 2
                self.progress.advance(advanced)
                done += advanced
        except UnweightError:
            # Values that the first pass has not seen fail in many ways: look for the cause.
            self._check_unchanged(entry, self._digest(entry, lambda data: None), digest)
            raise
        self._check_unchanged(entry, again.hexdigest(), digest)
        tensor = CodedTensor(chosen.number, digest)
        if not pipeline.is_exact:
            tensor = result.tensor(chosen)
        if self.writer.end(tensor, entry.nbytes):
            self.restored = restored
            return True
        self.progress.advance(-done)
        return False

    def _store(self, entry: TensorEntry, digest: str) -> None:
        self.writer.store(entry.spec.name, digest)

        def copy(data: bytes) -> None:
            self.writer.write(data)
            self.progress.advance(len(data) - len(data) // 2)

        self._check_unchanged(entry, self._digest(entry, copy), digest)

    def _check_unchanged(self, entry: TensorEntry, now: str, before: str) -> None:
        """Raise IntegrityError unless both passes have seen the same bytes of a tensor."""
        if now != before:
            raise IntegrityError(
                f"{self.source.path}: tensor {quoted(entry.spec.name)} changed while it was read",
                hint="compress it again when nothing writes to it",
            )


@dataclass(slots=True)
class _Result:
    """What the chunks of a tensor that was changed are decoded to, put together."""

    digest: "xxhash.xxh3_64" = field(default_factory=xxhash.xxh3_64)
    square: float = 0.0
    error: float = 0.0
    largest: float = 0.0

    def add(self, checked: CheckResult) -> None:
        """Take the next words."""
        self.digest.update(checked.words.data)
        self.square += checked.square
        self.error += checked.error
        self.largest = max(self.largest, checked.largest)

    def tensor(self, chosen: PipelineChoice) -> CodedTensor:
        """Return the tensor as the manifest has it."""
        relative = math.sqrt(self.error / self.square) if self.square else 0.0
        return CodedTensor(
            chosen.number, self.digest.hexdigest(), chosen.epsilon, relative, self.largest
        )


@dataclass(frozen=True, slots=True)
class _FileCoder:
    """What all files of a run are compressed with."""

    recipe: Recipe
    workers: Workers
    progress: Progress
    force: bool

    def compress(self, path: Path, index: ContainerIndex, output: Path, shown: Path) -> FileReport:
        """Compress the file at ``path`` to ``output``, which errors and reports call ``shown``."""
        with FileSource(path) as source:
            if source.size != index.size or source.read_at(0, len(index.header)) != index.header:
                raise IntegrityError(
                    f"{path} changed while it was read",
                    hint="compress it again when nothing writes to it",
                )
            with atomic_file(output, index.size, shown, force=self.force, at_most=True) as file:
                gaps = [source.read_at(*gap) for gap in index.gaps()]
                writer = self._open_writer(path, file, index, b"".join(gaps))
                job = _FileJob(source, writer, self.recipe, self.workers, self.progress)
                job.observe(index.header)
                self.progress.advance(len(index.header) - len(index.header) // 2)
                job.observe(gaps[0])
                names = []
                for entry, gap in zip(index.tensors, gaps[1:], strict=True):
                    names.append(job.tensor(entry))
                    job.observe(gap)
                digest = job.sha256.hexdigest()
                restored = job.restored.hexdigest() if self.recipe.is_bounded else digest
                size = writer.finish(digest, restored)
                self.progress.advance(0)
        rows = zip(index.tensors, names, writer.sizes, strict=True)
        tensors = tuple(
            TensorReport(
                e.spec.name, e.spec.dtype, e.spec.shape, name, e.nbytes, coded, *writer.errors(e)
            )
            for e, name, coded in rows
        )
        return FileReport(
            str(path), str(shown), index.container, index.size, size, digest, restored, tensors
        )

    def _open_writer(
        self, path: Path, file: BinaryIO, index: ContainerIndex, gaps: bytes
    ) -> ArchiveWriter:
        try:
            return ArchiveWriter(
                file,
                index,
                self.recipe.pipelines,
                gaps,
                small_header=self.recipe.preset == SMALLEST,
                bounded=self.recipe.is_bounded,
            )
        except UnweightError as error:
            raise FormatError(f"{path}: cannot be compressed: {error.message}") from None
