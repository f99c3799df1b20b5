"""Compress a container file or a model directory, verifying every chunk as it is written."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from unweight_codecs.archive import ArchiveWriter
from unweight_codecs.archive.header import check_not_archive
from unweight_codecs.archive.reader import SPAN_CHUNKS, STORED_SPAN
from unweight_codecs.archive.writer import MIN_CODED_BYTES
from unweight_codecs.codec import Block, Model, Reader
from unweight_codecs.containers.base import ContainerIndex, FileSource, TensorEntry
from unweight_codecs.containers.sniff import read_index
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError, quoted
from unweight_codecs.kernels import active_kernel, buffers
from unweight_codecs.kernels.base import Bytes
from unweight_codecs.layouts import layout_of
from unweight_codecs.operations.files import (
    Job,
    check_job_target,
    compressed_name,
    open_job,
    target_directory,
)
from unweight_codecs.operations.parallel import Workers
from unweight_codecs.operations.progress import Progress
from unweight_codecs.operations.report import FileReport, OperationReport, TensorReport
from unweight_codecs.operations.tensor_rows import STORED
from unweight_codecs.output import atomic_file, check_space
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import DEFAULT, SMALLEST
from unweight_codecs.recipe import Recipe, load_recipe
from unweight_codecs.survey import survey


@dataclass(frozen=True, slots=True)
class CompressOptions:
    """What to compress with.

    Attributes:
        preset: Name of a preset.
        recipe: TOML file that maps tensor-name patterns to pipelines; overrides the preset.
        stages: Settings on top, like ``"grid:mantissa_bits=1"``.
        threads: Threads to use; 0 takes what the process may use.
        force: Replace an existing target.
    """

    preset: str = DEFAULT
    recipe: Path | None = None
    stages: tuple[str, ...] = ()
    threads: int = 0
    force: bool = False


def compress(
    source: Path, target: Path | None, options: CompressOptions, progress: Progress
) -> OperationReport:
    """Compress ``source`` to ``target``; nothing appears under that name unless all went well."""
    started, cpu_started = time.perf_counter(), time.process_time()
    recipe = load_recipe(options.preset, options.recipe, options.stages)
    job = open_job(source)
    target = target or compressed_name(source)
    check_job_target(job, target, force=options.force)
    with Workers(options.threads) as workers:
        indexes = [_index_of(path, job) for path, _ in job.models]
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
            verified="bit-exact: verified",
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

    def observe(self, data: Bytes | bytes) -> None:
        """Take note of source bytes, in file order."""
        self.sha256.update(data if isinstance(data, bytes) else data.data)
        self.progress.advance(len(data) // 2)

    def tensor(self, entry: TensorEntry) -> str:
        """Code or store one tensor; returns the name of its pipeline."""
        chosen = self.recipe.pipeline_for(entry.spec.name)
        if chosen and entry.nbytes >= MIN_CODED_BYTES:
            number, name, pipeline = chosen
            chunk_words = pipeline.chunk_words(layout_of(entry.spec))
            view, digest = survey(
                entry.spec, self._reader(entry), chunk_words, self.observe, self.workers.ordered
            )
            model = pipeline.fit(view)
            expected = pipeline.head_length(model) + model.estimated_bits // 8
            if expected < entry.nbytes and self._code(entry, pipeline, model, number, digest):
                return name
            self._store(entry, digest)
        else:
            self._store(entry, self._digest(entry, self.observe))
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
        self, entry: TensorEntry, pipeline: Pipeline, model: Model, number: int, digest: str
    ) -> bool:
        read = self._reader(entry)

        def encode(first: int) -> Block:
            count = min(SPAN_CHUNKS * model.chunk_words, model.layout.words - first)
            block = Block(first, count, read(first, count))
            pipeline.encode(block, model)
            pipeline.check(block, model)
            block.drop_streams()
            return block

        self.writer.begin(pipeline, model)
        spans = range(0, model.layout.words, SPAN_CHUNKS * model.chunk_words)
        done, again = 0, xxhash.xxh3_64()
        try:
            for block in self.workers.ordered(encode, spans):
                again.update(block.words.data)
                self.writer.add(block)
                advanced = block.words.size - block.words.size // 2
                self.progress.advance(advanced)
                done += advanced
        except UnweightError:
            # Values that the first pass has not seen fail in many ways: look for the cause.
            self._check_unchanged(entry, self._digest(entry, lambda data: None), digest)
            raise
        self._check_unchanged(entry, again.hexdigest(), digest)
        if self.writer.end(number, digest, entry.nbytes):
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
            size = writer.finish(digest)
            progress.advance(0)
        tensors = tuple(
            TensorReport(e.spec.name, e.spec.dtype, e.spec.shape, name, e.nbytes, coded)
            for e, name, coded in zip(index.tensors, names, writer.sizes, strict=True)
        )
    return FileReport(str(path), str(shown), index.container, index.size, size, digest, tensors)
