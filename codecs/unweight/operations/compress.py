"""Compress a container file or a model directory, verifying every chunk as it is written."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from unweight.archive import ArchiveWriter
from unweight.archive.header import check_not_archive
from unweight.archive.reader import STORED_SPAN
from unweight.archive.writer import MIN_CODED_BYTES
from unweight.containers.base import ContainerIndex, FileSource, TensorEntry
from unweight.containers.registry import read_index
from unweight.manifest import CodedTensor
from unweight.operations.files import (
    Job,
    check_job_target,
    compressed_name,
    open_job,
    target_directory,
)
from unweight.operations.progress import Progress
from unweight.operations.report import FileReport, OperationReport, TensorReport
from unweight.operations.tensor_rows import STORED
from unweight.output import atomic_file, check_space
from unweight.recipe import Chosen, Recipe, load_recipe
from unweight_codecs.bounded.float_words import may_change
from unweight_codecs.codec import Reader
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError, UsageError, quoted
from unweight_codecs.kernels import active_kernel, buffers
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.layouts import layout_of
from unweight_codecs.parallel import Workers
from unweight_codecs.presets import DEFAULT, SMALLEST
from unweight_codecs.span import CheckResult
from unweight_codecs.survey import survey
from unweight_codecs.tensor_codec import TensorFit, encode_spans, fit_smallest


@dataclass(frozen=True, slots=True)
class CompressOptions:
    """What to compress with.

    Attributes:
        preset: Name of a preset.
        recipe: TOML file that maps tensor-name patterns to pipelines; overrides the preset.
        stages: Settings on top, like ``"grid:mantissa_bits=1"``.
        threads: Threads to use; 0 takes what the process may use.
        force: Replace an existing target.
        epsilon: Relative error allowed in a matrix of floats, in the Frobenius norm; 0 for none.
        epsilons: Other error bounds, by the name of the tensor.
    """

    preset: str = DEFAULT
    recipe: Path | None = None
    stages: tuple[str, ...] = ()
    threads: int = 0
    force: bool = False
    epsilon: float = 0.0
    epsilons: Mapping[str, float] = field(default_factory=dict)


def plan(source: Path, target: Path | None, options: CompressOptions) -> tuple[Recipe, Job, Path]:
    """Return recipe, job and target, or raise what ``compress`` would raise before it starts."""
    recipe = load_recipe(
        options.preset, options.recipe, options.stages, options.epsilon, options.epsilons
    )
    job = open_job(source)
    target = target or compressed_name(source)
    check_job_target(job, target, force=options.force)
    return recipe, job, target


def compress(
    source: Path, target: Path | None, options: CompressOptions, progress: Progress
) -> OperationReport:
    """Compress ``source`` to ``target``; nothing appears under that name unless all went well."""
    started, cpu_started = time.perf_counter(), time.process_time()
    recipe, job, target = plan(source, target, options)
    with Workers(options.threads) as workers:
        indexes = [_index_of(path, job) for path, _ in job.models]
        _check_names(options.epsilons, indexes)
        source_bytes = sum(index.size for index in indexes) + job.carried_bytes
        check_space(target, job.carried_bytes)
        progress.begin("compress", sum(index.size for index in indexes))
        files = []
        with target_directory(job, target, force=options.force) as folder:
            for (path, name), index in zip(job.models, indexes, strict=True):
                output = folder / name if job.is_directory else target
                shown = target / name if job.is_directory else target
                files.append(
                    _compress_file(
                        path, index, output, shown, recipe, workers, progress, force=options.force
                    )
                )
            progress.finish()
        return OperationReport(
            operation="compress",
            source=str(source),
            target=str(target),
            files=tuple(files),
            carried_files=len(job.carried),
            carried_bytes=job.carried_bytes,
            source_bytes=source_bytes,
            target_bytes=sum(file.target_bytes for file in files) + job.carried_bytes,
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - cpu_started,
            threads=workers.threads,
            kernel=active_kernel(),
            verified=_verified(files),
            notes=_notes(options.recipe, recipe, indexes),
        )


def _notes(path: Path | None, recipe: Recipe, indexes: list[ContainerIndex]) -> tuple[str, ...]:
    """Say which rules had no effect: a pattern may be misspelt, and a tensor left unprotected."""
    names = [entry.spec.name for index in indexes for entry in index.tensors]
    return tuple(f"{path}: rule {n}: no tensor follows it" for n in recipe.idle_rules(names))


def _verified(files: list[FileReport]) -> str:
    """Say in words what was checked while compressing."""
    rows = [tensor for file in files for tensor in file.tensors]
    bounded = [tensor for tensor in rows if tensor.epsilon]
    if not bounded:
        return "bit-exact: verified"
    worst = max(tensor.error for tensor in bounded)
    others = ", the others bit-exact" if len(bounded) < len(rows) else ""
    return (
        f"relative error at most {worst:.3g} in {len(bounded):,} of {len(rows):,} tensors"
        f"{others}: verified"
    )


def _check_names(epsilons: Mapping[str, float], indexes: list[ContainerIndex]) -> None:
    """Raise UsageError when error bounds are given by name and no tensor has such a name."""
    names = (entry.spec.name for index in indexes for entry in index.tensors)
    if epsilons and not any(name in epsilons for name in names):
        raise UsageError(
            "no tensor has a name for which there is an error bound of its own",
            hint="was the sensitivity file made from another model?",
        )


def _index_of(path: Path, job: Job) -> ContainerIndex:
    with FileSource(path) as source:
        index = read_index(source)
    if job.is_directory:
        hint = "move or remove it, unless the whole directory is compressed already"
        check_not_archive(index, path, hint)
    else:
        check_not_archive(index, path)
    return index


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

    def _code(self, entry: TensorEntry, chosen: Chosen, fit: TensorFit, digest: str) -> bool:
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

    def tensor(self, chosen: Chosen) -> CodedTensor:
        """Return the tensor as the manifest has it."""
        relative = math.sqrt(self.error / self.square) if self.square else 0.0
        return CodedTensor(
            chosen.number, self.digest.hexdigest(), chosen.epsilon, relative, self.largest
        )


def _compress_file(
    path: Path,
    index: ContainerIndex,
    output: Path,
    shown: Path,
    recipe: Recipe,
    workers: Workers,
    progress: Progress,
    *,
    force: bool,
) -> FileReport:
    with FileSource(path) as source:
        if source.size != index.size or source.read_at(0, len(index.header)) != index.header:
            raise IntegrityError(
                f"{path} changed while it was read",
                hint="compress it again when nothing writes to it",
            )
        with atomic_file(output, index.size, shown, force=force, at_most=True) as file:
            gaps = [source.read_at(*gap) for gap in index.gaps()]
            try:
                writer = ArchiveWriter(
                    file,
                    index,
                    recipe.pipelines,
                    b"".join(gaps),
                    small_header=recipe.preset == SMALLEST,
                    bounded=recipe.is_bounded,
                )
            except UnweightError as error:
                raise FormatError(f"{path}: cannot be compressed: {error.message}") from None
            job = _FileJob(source, writer, recipe, workers, progress)
            job.observe(index.header)
            progress.advance(len(index.header) - len(index.header) // 2)
            job.observe(gaps[0])
            names = []
            for entry, gap in zip(index.tensors, gaps[1:], strict=True):
                names.append(job.tensor(entry))
                job.observe(gap)
            digest = job.sha256.hexdigest()
            restored = job.restored.hexdigest() if recipe.is_bounded else digest
            size = writer.finish(digest, restored)
            progress.advance(0)
        tensors = tuple(
            TensorReport(
                e.spec.name, e.spec.dtype, e.spec.shape, name, e.nbytes, coded, *writer.errors(e)
            )
            for e, name, coded in zip(index.tensors, names, writer.sizes, strict=True)
        )
    return FileReport(
        str(path), str(shown), index.container, index.size, size, digest, restored, tensors
    )
