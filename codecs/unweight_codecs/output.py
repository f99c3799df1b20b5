"""Output that appears only when it is complete: a temporary beside the target, fsync, rename."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from unweight_codecs.errors import ResourceError, UsageError

TEMPORARY_MARK = ".unweight-tmp-"  # hidden and recognisable, should a kill leave one behind


def check_target(source: Path, target: Path, *, force: bool, parts: Iterable[Path] = ()) -> None:
    """Refuse targets that must not be written, before any work is done.

    Raises UsageError for an existing target without ``force``, one that is the source itself (also
    through links), lies inside it or holds it or one of its ``parts``, or is neither a regular file
    nor a directory.
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
            raise ResourceError(f"{target}: {error.strerror}", hint="choose another -o") from error
        mode = None
    # What does not exist yet can only lie inside the source.
    held = [] if mode is None else [real_source, *map(_real, parts)]
    inside = any(path == real_target or real_target in path.parents for path in held)
    same = mode is not None and source.samefile(target)
    if same or inside or real_source in real_target.parents:
        raise UsageError(
            f"{target}: the output would overwrite its own input", hint="choose another -o"
        )
    if mode is None:
        return
    is_directory = source.is_dir() or source.name.lower().endswith(".json")
    if not (stat.S_ISDIR(mode) if is_directory else stat.S_ISREG(mode)):
        kind = "directory" if is_directory else "regular file"
        raise UsageError(f"{target}: exists and is not a {kind}", hint="choose another -o")
    if not force:
        raise UsageError(f"{target}: already exists", hint="--force replaces it")


def _real(path: Path) -> Path:
    # Unlike Path.resolve, this does not raise for links in a circle.
    return Path(os.path.realpath(path))


def check_space(target: Path, needed: int) -> None:
    """Raise ResourceError unless the target's file system has ``needed`` bytes free."""
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise no_space(target, needed, free)


def no_space(target: Path, needed: int, free: int) -> ResourceError:
    """Return the error for a full disk."""
    return ResourceError(
        f"{target}: no space: {needed} bytes needed, {free} free",
        hint="free some, or choose another -o",
    )


@contextmanager
def atomic_file(target: Path, needed: int, shown: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file that becomes ``target`` when the block ends without an exception.

    ``needed`` is the expected size, for the message when the disk fills up; ``shown`` is the name
    for errors, where the target will be moved. The target gets the permissions of any new file.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=_prefix(target), dir=target.parent)
    except OSError as error:
        raise ResourceError(f"{target.parent}: cannot be written: {error.strerror}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w+b", buffering=0) as file:
            yield file
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _failure(target, shown or target, needed, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


@contextmanager
def atomic_directory(target: Path, needed: int) -> Iterator[Path]:
    """Yield a new directory that becomes ``target`` when the block ends without an exception.

    An existing target is moved aside first and removed last. ``needed`` is as for ``atomic_file``.
    """
    try:
        name = tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent)
    except OSError as error:
        raise ResourceError(f"{target.parent}: cannot be written: {error.strerror}") from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if target.exists():
            _exchange(temporary, target)
        else:
            os.replace(temporary, target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _failure(target, target, needed, error) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_directory(target.parent)


def _exchange(new: Path, target: Path) -> None:
    """Put the directory ``new`` in the place of ``target``, which stays if that fails half-way."""
    aside = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    old = aside / "old"
    try:
        os.replace(target, old)
        os.replace(new, target)
    except BaseException:  # an interrupt, too, must not leave the user without both
        if old.exists() and not target.exists():
            os.replace(old, target)
        raise
    finally:
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _prefix(target: Path) -> str:
    # A file name has at most 255 bytes, which the mark and a unique ending must share.
    start = target.name
    while len(os.fsencode(start)) > 100:
        start = start[:-1]
    return f".{start}{TEMPORARY_MARK}"


def _failure(target: Path, shown: Path, needed: int, error: OSError) -> ResourceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(shown, needed, shutil.disk_usage(target.parent).free)
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


def write_all(file: BinaryIO, data: memoryview | bytes) -> None:
    """Write every byte; raw files may take only part of a buffer at once."""
    view = memoryview(data).cast("B")
    while len(view):
        view = view[file.write(view) :]
