"""Restore the original of an Unweight file or directory."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unweight_codecs.archive import ArchiveReader, is_archive
from unweight_codecs.containers.base import FileSource
from unweight_codecs.containers.sniff import read_index
from unweight_codecs.errors import FormatError
from unweight_codecs.kernels import active_kernel
from unweight_codecs.kernels.base import Bytes
from unweight_codecs.operations.files import Job, open_job, restored_name, target_directory
from unweight_codecs.operations.parallel import Workers
from unweight_codecs.operations.progress import Progress
from unweight_codecs.operations.report import FileReport, OperationReport
from unweight_codecs.operations.restore import check_structure, restore
from unweight_codecs.operations.tensor_rows import tensor_rows
from unweight_codecs.output import atomic_file, check_space, check_target, write_all


def default_target(source: Path) -> Path:
    """Return where the result goes when no target is given."""
    return restored_name(source)


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """A job whose models are Unweight files, or plain ones that a directory merely holds."""

    job: Job
    archives: tuple[tuple[Path, PurePosixPath], ...]
    plain: tuple[tuple[Path, PurePosixPath], ...]

    @property
    def restored_bytes(self) -> int:
        """Size of everything once restored."""
        total = sum(path.stat().st_size for path, _ in (*self.plain, *self.job.carried))
        for path, _ in self.archives:
            with ArchiveReader(path) as archive:
                total += archive.manifest.source.size
        return total


def open_archives(source: Path) -> ArchiveJob:
    """List the Unweight files behind a path; raises FormatError when there are none."""
    job = open_job(source)
    archives: list[tuple[Path, PurePosixPath]] = []
    plain: list[tuple[Path, PurePosixPath]] = []
    for path, name in job.models:
        with FileSource(path) as file:
            (archives if is_archive(read_index(file)) else plain).append((path, name))
    if not archives:
        raise FormatError(
            f"{source}: not compressed by Unweight", hint="`unweight compress` does that"
        )
    return ArchiveJob(job, tuple(archives), tuple(plain))


def decompress(
    source: Path, target: Path | None, *, threads: int, force: bool, progress: Progress
) -> OperationReport:
    """Restore ``source`` to ``target``, which appears only if every digest holds."""
    started, cpu_started = time.perf_counter(), time.process_time()
    found = open_archives(source)
    target = target or restored_name(source)
    check_target(source, target, force=force, parts=found.job.parts)
    for path, _ in found.archives:
        with ArchiveReader(path) as archive:
            check_structure(archive)
    needed = found.restored_bytes
    check_space(target, needed)
    with Workers(threads) as workers:
        progress.begin("decompress", needed)
        files = []
        with target_directory(found.job, target) as folder:
            for path, name in found.plain:
                shutil.copyfile(path, folder / name)
            for path, name in found.archives:
                output = folder / name if found.job.is_directory else target
                shown = target / name if found.job.is_directory else target
                files.append(_decompress_file(path, output, shown, workers, progress))
        progress.finish()
        carried = (*found.job.carried, *found.plain)
        carried_bytes = sum(path.stat().st_size for path, _ in carried)
        return OperationReport(
            operation="decompress",
            source=str(source),
            target=str(target),
            files=tuple(files),
            carried_files=len(carried),
            carried_bytes=carried_bytes,
            source_bytes=sum(path.stat().st_size for path, _ in found.archives) + carried_bytes,
            target_bytes=needed,
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - cpu_started,
            threads=workers.threads,
            kernel=active_kernel(),
            verified="SHA-256 of the original: verified",
        )


def _decompress_file(
    path: Path, output: Path, shown: Path, workers: Workers, progress: Progress
) -> FileReport:
    with ArchiveReader(path) as archive:
        source = archive.manifest.source
        with atomic_file(output, source.size, shown) as file:

            def sink(data: Bytes) -> None:
                write_all(file, data.data)
                progress.advance(data.size)

            restore(archive, workers, sink)
        return FileReport(
            str(path),
            str(shown),
            source.container,
            path.stat().st_size,
            source.size,
            archive.manifest.source_sha256,
            tensor_rows(archive),
        )
