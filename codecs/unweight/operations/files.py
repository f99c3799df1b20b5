"""What an operation works on: one container file, or the files of a model directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unweight.containers.base import FileSource
from unweight.containers.directories.snapshot import (
    INDEX_SUFFIX,
    UNMANAGED,
    is_index_path,
    open_snapshot,
)
from unweight.containers.registry import CONTAINERS, container_named, sniff
from unweight.output import (
    atomic_directory,
    check_replaceable,
    check_target,
    copy_file,
    is_leftover,
)
from unweight_codecs.errors import UsageError

MARK = ".unweight"


@dataclass(frozen=True, slots=True)
class Job:
    """Files of one run, as pairs of (where it is, where it goes relative to the target).

    For a single file the second part is empty. ``carried`` files are copied unchanged.
    """

    source: Path
    models: tuple[tuple[Path, PurePosixPath], ...]
    carried: tuple[tuple[Path, PurePosixPath], ...]
    is_directory: bool

    @property
    def parts(self) -> list[Path]:
        """Every file that is read."""
        return [path for path, _ in (*self.models, *self.carried)]

    @property
    def names(self) -> frozenset[PurePosixPath] | None:
        """The files of a directory, relative to it; None for a single file."""
        if not self.is_directory:
            return None
        return frozenset(name for _, name in (*self.models, *self.carried))

    @property
    def carried_bytes(self) -> int:
        """Total size of the carried files."""
        return sum(path.stat().st_size for path, _ in self.carried)


def open_job(source: Path) -> Job:
    """List the files behind a path; raises UsageError when there is nothing.

    Of a directory, what ``is_ignored`` names is left out.
    """
    if not source.exists():
        hint = "" if not source.is_symlink() else "it is a link that leads nowhere"
        raise UsageError(f"{source}: no such file or directory", hint=hint)
    if source.is_dir() or is_index_path(source):
        snapshot = open_snapshot(source)
        return Job(
            source,
            tuple((snapshot.resolve(name), name) for name in snapshot.models),
            tuple(
                (snapshot.resolve(name), name) for name in snapshot.carried if not is_ignored(name)
            ),
            is_directory=True,
        )
    return Job(source, ((source, PurePosixPath()),), (), is_directory=False)


def is_ignored(file: PurePosixPath) -> bool:
    """Return whether a file in a model directory is, judging by its path, no part of the model."""
    return is_leftover(file) or not UNMANAGED.isdisjoint(file.parts)


def check_job_target(job: Job, target: Path, *, force: bool) -> None:
    """Refuse targets that must not be written: see ``check_target``."""
    check_target(job.source, target, force=force, parts=job.parts, names=job.names)


@contextmanager
def target_directory(job: Job, target: Path, *, force: bool) -> Iterator[Path]:
    """Yield the folder to write into: a new directory for directories, nothing special for files.

    Carried files are in the directory when the block begins.
    """
    names = job.names
    if names is None:
        yield target
        return
    with atomic_directory(target, job.carried_bytes, force=force) as folder:
        for _, name in (*job.models, *job.carried):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for path, name in job.carried:
            copy_file(path, folder / name)
        yield folder
        if force and target.exists():
            check_replaceable(target, names)  # the work took its time


def compressed_name(source: Path) -> Path:
    """Return where ``compress`` writes by default; a file without a suffix gets one."""
    if source.is_dir():
        source = source.resolve() if source.name in ("", ".", "..") else source
        return source.with_name(source.name + MARK)
    name = source.name
    if is_index_path(source):
        return source.with_name(name[: -len(INDEX_SUFFIX)] + MARK)
    return source.with_name(f"{source.stem}{MARK}{_compressed_suffix(source)}")


def _compressed_suffix(model: Path) -> str:
    """Return the suffix of the result: that of the host, where it is another container."""
    own_hosts = (row for row in CONTAINERS.values() if row.host == row.name)
    if model.suffix.lower() in {row.suffix for row in own_hosts}:
        return model.suffix  # whatever is inside will be looked at when it is read
    with FileSource(model) as file:
        container = sniff(file)
    if container.host != container.name:
        return container_named(container.host).suffix
    return model.suffix or container.suffix


def restored_name(source: Path, container: str = "") -> Path:
    """Return where ``decompress`` writes by default: the name without the mark, if it has one.

    ``container`` is the source's, of a file that its own container does not host.
    """
    stem, suffix = source.stem, source.suffix
    if source.is_dir():
        source = source.resolve() if source.name in ("", ".", "..") else source
        stem, suffix = source.name, ""
    elif is_index_path(source):
        stem, suffix = source.name[: -len(INDEX_SUFFIX)], ""
    elif container:
        suffix = container_named(container).suffix
    if stem.endswith(MARK) and stem != MARK:
        return source.with_name(stem[: -len(MARK)] + suffix)
    return source.with_name(f"{stem}.restored{suffix}")
