"""Verify an Unweight file: chunks, tensors and the whole; on request against the original."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from unweight.archive import ArchiveReader, is_archive_at
from unweight.containers.base import FileSource
from unweight.containers.directories.snapshot import is_index_path
from unweight.operations.decompress import ArchiveJob, open_archives
from unweight.operations.files import Job, is_ignored
from unweight.operations.original_comparison import OriginalComparison
from unweight.operations.progress import Progress
from unweight.operations.report import CheckKind, FileReport, OperationReport
from unweight.operations.restore import restore
from unweight.operations.run import OperationRun
from unweight.operations.tensor_rows import tensor_rows
from unweight_codecs.accelerators import CPU, Engine, Piece, no_note, open_engine
from unweight_codecs.errors import FormatError, IntegrityError, UsageError

_COMPARE_BYTES = 1 << 20


def verify(
    source: Path,
    against: Path | None,
    *,
    threads: int,
    progress: Progress,
    device: str = CPU,
    note: Callable[[str], None] = no_note,
) -> OperationReport:
    """Decode everything and check every checksum and digest, without output.

    With ``against``, the original file or directory is compared bit by bit as well, carried files
    included; an index stands for itself and its shards. Tensors that were changed are compared with
    their error bound instead. ``device`` decodes and compares, ``note`` is told what a user should
    know; see ``open_engine``. Raises IntegrityError at the first difference, QualityGateError for
    an error above the bound.
    """
    run = OperationRun("verify", source)
    found = open_archives(source)
    if against is not None:
        _check_comparable(found.job, against)
    total = found.check()
    with open_engine(device, threads, note) as engine:
        progress.begin("verify", total)
        files = []
        for path, name in found.archives:
            original = _original_of(found.job, name, against) if against else None
            if original is not None and original.exists():
                _check_not_compressed(original)
            files.append(_verify_file(path, original, engine, progress))
        if against is not None:
            _compare_carried(found, against)
        progress.finish()
        carried_bytes = found.carried_bytes
        return run.report(
            against,
            files,
            carried_files=len(found.carried),
            carried_bytes=carried_bytes,
            source_bytes=sum(path.stat().st_size for path, _ in found.archives) + carried_bytes,
            target_bytes=total,
            threads=engine.threads,
            checked=CheckKind.ORIGINAL if against else CheckKind.DIGESTS,
            device=engine.name,
        )


def _check_comparable(job: Job, against: Path) -> None:
    if not against.exists():
        raise UsageError(f"{against}: no such file or directory")
    is_index = not against.is_dir() and is_index_path(against)
    if (is_index or against.is_dir()) != job.is_directory:
        raise UsageError(f"{against}: a file and a directory cannot be compared")
    if is_index and job.source.is_dir():
        raise UsageError(
            f"{against}: stands for its shards only, {job.source} is a whole directory",
            hint="give two directories or two indexes",
        )


def _check_not_compressed(original: Path) -> None:
    try:
        is_compressed = is_archive_at(original)
    except FormatError:  # no container at all: the comparison will say where it differs
        return
    if is_compressed:
        raise UsageError(
            f"{original}: is compressed itself, and no original", hint="decompress it first"
        )


def _original_of(job: Job, name: PurePosixPath, against: Path) -> Path:
    """Return what the file ``name`` of a job is compared with; indexes may differ in name."""
    if not job.is_directory:
        return against
    if against.is_dir():
        return against / name
    return against if name.name == job.source.name else against.parent / name


def _verify_file(
    path: Path, original: Path | None, engine: Engine, progress: Progress
) -> FileReport:
    with ArchiveReader(path) as archive:
        comparison = OriginalComparison(archive, original) if original else None

        def sink(piece: Piece) -> None:
            if comparison:
                comparison.take(piece)
            progress.advance(piece.words.size)

        try:
            restore(archive, engine, sink, comparison.enter if comparison else lambda entry: None)
            if comparison:
                comparison.finish()
        finally:
            if comparison:
                comparison.close()
        source = archive.manifest.source
        rows = tensor_rows(archive)
        return FileReport(
            str(path),
            str(original or ""),
            source.container,
            path.stat().st_size,
            source.size,
            archive.manifest.source_sha256,
            archive.manifest.expected_sha256,
            tuple(map(comparison.measured, rows)) if comparison else rows,
        )


def _compare_carried(found: ArchiveJob, against: Path) -> None:
    for path, name in found.carried:
        other = _original_of(found.job, name, against)
        if not other.is_file() or not _same(path, other):
            raise IntegrityError(f"{path}: differs from {other}")
    known = {name for _, name in (*found.job.models, *found.job.carried)}
    if not found.job.source.is_dir():
        return
    for other in sorted(against.rglob("*")):
        name = PurePosixPath(other.relative_to(against))
        if other.is_file() and name not in known and not is_ignored(name):
            raise IntegrityError(f"{found.job.source}: lacks {name}, which {against} has")


def _same(one: Path, two: Path) -> bool:
    with FileSource(one) as a, FileSource(two) as b:
        if a.size != b.size:
            return False
        return all(
            a.read_at(at, min(_COMPARE_BYTES, a.size - at))
            == b.read_at(at, min(_COMPARE_BYTES, a.size - at))
            for at in range(0, a.size, _COMPARE_BYTES)
        )
