"""Output that appears only when it is complete: a temporary beside the target, fsync, rename."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from unweight_codecs.errors import Parameter, Phrase, ResourceError, UsageError

TEMPORARY_MARK = ".unweight-tmp-"  # hidden and recognisable, should a kill leave one behind
_OUTPUT = Parameter("output")
_ANOTHER = Phrase("choose another ", _OUTPUT)
_FORCE = Phrase(Parameter("force", True), " replaces it")
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def check_target(
    source: Path,
    target: Path,
    *,
    force: bool,
    parts: Iterable[Path] = (),
    names: Collection[PurePosixPath] | None = None,
) -> None:
    """Refuse targets that must not be written, before any work is done.

    ``names`` are the files that the output has where it is a directory. Raises UsageError for an
    existing target without ``force``, one that is the source itself (also through links), lies
    inside it or holds it or one of its ``parts``, is of the wrong kind, or is a directory that
    holds more than ``names``.
    """
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent}: no such directory for the output")
    real_source, real_target = _real(source), _real(target)
    try:
        mode = os.stat(target).st_mode
    except OSError as error:
        if target.is_symlink():
            raise UsageError(f"{target}: a link that leads nowhere", hint="remove it") from None
        if not isinstance(error, FileNotFoundError):
            raise ResourceError(f"{target}: {error.strerror}", hint=_ANOTHER) from error
        mode = None
    # What does not exist yet can only lie inside the source.
    held = [] if mode is None else [real_source, *map(_real, parts)]
    inside = any(path == real_target or real_target in path.parents for path in held)
    same = mode is not None and source.samefile(target)
    if same or inside or real_source in real_target.parents:
        raise UsageError(f"{target}: the output would overwrite its own input", hint=_ANOTHER)
    if mode is None:
        return
    if not (stat.S_ISREG(mode) if names is None else stat.S_ISDIR(mode)):
        kind = "regular file" if names is None else "directory"
        raise UsageError(f"{target}: exists and is not a {kind}", hint=_ANOTHER)
    if not force:
        raise UsageError(f"{target}: already exists", hint=_FORCE)
    if names is not None:
        check_replaceable(target, names)


def check_replaceable(target: Path, names: Collection[PurePosixPath]) -> None:
    """Raise UsageError if the directory ``target`` holds anything but files called ``names``."""

    def fail(error: OSError) -> None:
        raise ResourceError(f"{error.filename}: cannot be read: {error.strerror}") from error

    for folder, subfolders, files in os.walk(target, onerror=fail):
        links = (name for name in subfolders if os.path.islink(os.path.join(folder, name)))
        for name in sorted((*files, *links)):
            path = Path(folder, name)
            if PurePosixPath(path.relative_to(target)) not in names:
                raise UsageError(
                    f"{path}: is not of this model and would be deleted with {target}",
                    hint=Phrase("move it away, or choose another ", _OUTPUT),
                )


def is_leftover(file: PurePosixPath) -> bool:
    """Return whether the path of a file shows that a killed run left it, or a folder above it."""
    return any(part.startswith(".") and TEMPORARY_MARK in part for part in file.parts)


def _real(path: Path) -> Path:
    # Unlike Path.resolve, this does not raise for links in a circle.
    return Path(os.path.realpath(path))


def check_space(target: Path, needed: int) -> None:
    """Raise ResourceError unless the target's file system has ``needed`` bytes free."""
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise no_space(target, needed, free)


def no_space(target: Path, needed: int, free: int, *, at_most: bool = False) -> ResourceError:
    """Return the error for a full disk; ``at_most`` tells that ``needed`` is a bound."""
    return ResourceError(
        f"{target}: no space: {'up to ' if at_most else ''}{needed} bytes needed, {free} free",
        hint=Phrase("free some, or choose another ", _OUTPUT),
    )


@contextmanager
def atomic_file(
    target: Path,
    needed: int,
    shown: Path | None = None,
    *,
    force: bool = False,
    at_most: bool = False,
) -> Iterator[BinaryIO]:
    """Yield a file that becomes ``target`` when the block ends without an exception.

    ``needed`` is the expected size (the largest one if ``at_most``), for the message when the disk
    fills up; ``shown`` is the name for errors, where the target will be moved. The target gets the
    permissions of any new file. Without ``force``, raises UsageError if it exists by then.
    """
    temporary = _temporary(target)
    try:
        with _create(temporary) as file:
            yield file
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        if force:
            os.replace(temporary, target)
        else:
            _publish_new(temporary, target, shown or target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _failure(target, shown or target, needed, error, at_most=at_most) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


@contextmanager
def atomic_directory(target: Path, needed: int, *, force: bool = False) -> Iterator[Path]:
    """Yield a new directory that becomes ``target`` when the block ends without an exception.

    ``needed`` is as for ``atomic_file``. With ``force``, an existing target is moved aside first
    and removed last; without, raises UsageError if it exists by then.
    """
    temporary = _temporary(target)
    try:
        _create_directory(temporary)
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        for folder, _, _ in os.walk(temporary, topdown=False):
            _sync_directory(Path(folder))
        if force and target.exists():
            _exchange(temporary, target)
        else:
            _publish_new_directory(temporary, target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _failure(target, target, needed, error) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_directory(target.parent)


def _publish_new(temporary: Path, target: Path, shown: Path) -> None:
    """Rename a file, but never over another: a rename cannot promise that, a hard link does."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise _appeared(shown) from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(target):
            raise _appeared(shown) from None
        os.replace(temporary, target)
    else:
        temporary.unlink()


def _publish_new_directory(temporary: Path, target: Path) -> None:
    """Rename a directory, but not over another: the system refuses that unless it is empty."""
    if os.path.lexists(target):
        raise _appeared(target)
    try:
        os.rename(temporary, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise _appeared(target) from None
        raise


def _appeared(target: Path) -> UsageError:
    return UsageError(f"{target}: appeared while the output was written", hint=_FORCE)


def _exchange(new: Path, target: Path) -> None:
    """Put the directory ``new`` in the place of ``target``, which stays if that fails half-way."""
    aside = _temporary(target)
    old = aside / "old"
    try:
        _create_directory(aside)
        os.replace(target, old)
        os.replace(new, target)
        shutil.rmtree(aside, ignore_errors=True)
    except BaseException:  # an interrupt, too, must not leave the user without both, or with both
        if old.exists() and not target.exists():
            os.replace(old, target)
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)
        raise


def _temporary(target: Path) -> Path:
    """Return a new name. It is known before anything has it, so an interrupt leaves nothing."""
    return target.parent / f"{_prefix(target)}{secrets.token_hex(8)}"


def _create(path: Path) -> FileIO:
    """Open a new file that nobody else may read yet."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        return os.fdopen(handle, "w+b", buffering=0)
    except OSError as error:
        raise ResourceError(f"{path.parent}: cannot be written: {error.strerror}") from error


def _create_directory(path: Path) -> None:
    try:
        path.mkdir(0o700)
    except OSError as error:
        raise ResourceError(f"{path.parent}: cannot be written: {error.strerror}") from error


def _prefix(target: Path) -> str:
    # A file name has at most 255 bytes, which the mark and a unique ending must share.
    start = target.name
    while len(os.fsencode(start)) > 100:
        start = start[:-1]
    return f".{start}{TEMPORARY_MARK}"


def _failure(
    target: Path, shown: Path, needed: int, error: OSError, *, at_most: bool = False
) -> ResourceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(target.parent).free
        return no_space(shown, needed, free, at_most=at_most)
    return ResourceError(f"{shown}: cannot be written: {error.strerror}")


def _umask() -> int:
    # There is no call that only reads it; both operations run one output at a time.
    current = os.umask(0)
    os.umask(current)
    return current


def _sync_directory(path: Path) -> None:
    """Make the rename itself durable, where the system allows it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def copy_file(source: Path, target: Path) -> None:
    """Copy the bytes of a file and see them to the disk."""
    shutil.copyfile(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def write_all(file: BinaryIO, data: memoryview | bytes) -> None:
    """Write every byte; raw files may take only part of a buffer at once."""
    view = memoryview(data).cast("B")
    while len(view):
        view = view[file.write(view) :]
