"""Restore the original of an Unweight file or directory."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unweight.archive import ArchiveReader, is_archive_at
from unweight.containers.registry import hosts_others
from unweight.operations.files import (
    Job,
    check_job_target,
    open_job,
    restored_name,
    target_directory,
)
from unweight.operations.progress import Progress
from unweight.operations.report import CheckKind, FileReport, OperationReport
from unweight.operations.restore import check_structure, restore
from unweight.operations.run import OperationRun
from unweight.operations.tensor_rows import tensor_rows
from unweight.output import atomic_file, check_space, copy_file, write_all
from unweight_codecs.accelerators import CPU, Engine, Piece, no_note, open_engine
from unweight_codecs.errors import FormatError


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """A job whose models are Unweight files, or plain ones that a directory merely holds."""

    job: Job
    archives: tuple[tuple[Path, PurePosixPath], ...]
    plain: tuple[tuple[Path, PurePosixPath], ...]

    @property
    def carried(self) -> tuple[tuple[Path, PurePosixPath], ...]:
        """Everything that is no Unweight file."""
        return (*self.job.carried, *self.plain)

    @property
    def carried_bytes(self) -> int:
        """Total size of ``carried``."""
        return sum(path.stat().st_size for path, _ in self.carried)

    def hosted_container(self) -> str:
        """Return the container of the source of a single file that is of another one, or ""."""
        path = self.archives[0][0]
        if self.job.is_directory or not hosts_others(path):
            return ""
        with ArchiveReader(path) as archive:
            source = archive.manifest.source.container
            return "" if source == archive.index.container else source

    def check(self) -> int:
        """Check the structure of every Unweight file; returns the size of everything restored."""
        total = self.carried_bytes
        for path, _ in self.archives:
            with ArchiveReader(path) as archive:
                check_structure(archive)
                total += archive.manifest.source.size
        return total


def open_archives(source: Path) -> ArchiveJob:
    """List the Unweight files behind a path; raises FormatError when there are none."""
    job = open_job(source)
    archives: list[tuple[Path, PurePosixPath]] = []
    plain: list[tuple[Path, PurePosixPath]] = []
    for path, name in job.models:
        (archives if is_archive_at(path) else plain).append((path, name))
    if not archives:
        raise FormatError(
            f"{source}: not compressed by Unweight", hint="`unweight compress` does that"
        )
    return ArchiveJob(job, tuple(archives), tuple(plain))


def decompress(
    source: Path,
    target: Path | None,
    *,
    threads: int,
    force: bool,
    progress: Progress,
    device: str = CPU,
    note: Callable[[str], None] = no_note,
) -> OperationReport:
    """Restore ``source`` to ``target``, which appears only if every digest holds.

    ``device`` is what decodes, ``note`` is told what a user should know; see ``open_engine``.
    """
    run = OperationRun("decompress", source)
    found = open_archives(source)
    target = target or restored_name(source, found.hosted_container())
    check_job_target(found.job, target, force=force)
    needed = found.check()
    check_space(target, needed)
    with open_engine(device, threads, note) as engine:
        progress.begin("decompress", needed)
        files = []
        with target_directory(found.job, target, force=force) as folder:
            for path, name in found.plain:
                copy_file(path, folder / name)
            for path, name in found.archives:
                output = folder / name if found.job.is_directory else target
                shown = target / name if found.job.is_directory else target
                files.append(_decompress_file(path, output, shown, engine, progress, force=force))
            progress.finish()
        carried_bytes = found.carried_bytes
        return run.report(
            target,
            files,
            carried_files=len(found.carried),
            carried_bytes=carried_bytes,
            source_bytes=sum(path.stat().st_size for path, _ in found.archives) + carried_bytes,
            target_bytes=needed,
            threads=engine.threads,
            checked=CheckKind.DIGESTS,
            device=engine.name,
        )


def _decompress_file(
    path: Path, output: Path, shown: Path, engine: Engine, progress: Progress, *, force: bool
) -> FileReport:
    with ArchiveReader(path) as archive:
        source = archive.manifest.source
        with atomic_file(output, source.size, shown, force=force) as file:

            def sink(piece: Piece) -> None:
                write_all(file, piece.words.data)
                progress.advance(piece.words.size)

            restore(archive, engine, sink)
            progress.advance(0)
        return FileReport(
            str(path),
            str(shown),
            source.container,
            path.stat().st_size,
            source.size,
            archive.manifest.source_sha256,
            archive.manifest.expected_sha256,
            tensor_rows(archive),
        )
