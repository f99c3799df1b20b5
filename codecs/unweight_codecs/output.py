"""Output that appears only when it is complete: a temporary beside the target, fsync, rename."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from unweight_codecs.errors import ResourceError, UsageError

TEMPORARY_MARK = ".unweight-tmp-"  # hidden and recognisable, should a kill leave one behind


def check_target(source: Path, target: Path, *, force: bool) -> None:
    """Refuse targets that must not be written, before any work is done.

    Raises UsageError for an existing target without ``force``, one that is the source itself (also
    through links), lies inside it or holds it, or is neither a regular file nor a directory.
    """
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent}: no such directory for the output")
    real_source, real_target = source.resolve(), target.resolve()
    same = real_source == real_target or (target.exists() and source.samefile(target))
    if same or real_source in real_target.parents or real_target in real_source.parents:
        raise UsageError(f"{target}: the output would overwrite its own input", hint="choose another -o")
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        if target.is_symlink():
            raise UsageError(f"{target}: a link that leads nowhere", hint="remove it") from None
        return
    except OSError as error:
        raise ResourceError(f"{target}: {error.strerror}") from error
    is_directory = source.is_dir() or source.name.endswith(".json")
    if not (stat.S_ISDIR(mode) if is_directory else stat.S_ISREG(mode)):
        kind = "directory" if is_directory else "regular file"
        raise UsageError(f"{target}: exists and is not a {kind}", hint="choose another -o")
    if not force:
        raise UsageError(f"{target}: already exists", hint="--force replaces it")


def check_space(target: Path, needed: int) -> None:
    """Raise ResourceError unless the target's file system has ``needed`` bytes free."""
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise no_space(target, needed, free)


def no_space(target: Path, needed: int, free: int) -> ResourceError:
    """Return the error for a full disk."""
    return ResourceError(
        f"{target}: no space: {needed} bytes needed, {free} free", hint="free some, or choose another -o"
    )


@contextmanager
def atomic_file(target: Path, needed: int) -> Iterator[BinaryIO]:
    """Yield a file that becomes ``target`` when the block ends without an exception.

    ``needed`` is the expected size, for the message when the disk fills up. The target gets the
    permissions a new file would have.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}{TEMPORARY_MARK}", dir=target.parent)
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
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(target.parent).free
            raise no_space(target, needed, free) from error
        raise ResourceError(f"{target}: cannot be written: {error.strerror}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yield a new directory that becomes ``target`` when the block ends without an exception.

    An existing target is moved aside first and removed last.
    """
    try:
        name = tempfile.mkdtemp(prefix=f".{target.name[:100]}{TEMPORARY_MARK}", dir=target.parent)
    except OSError as error:
        raise ResourceError(f"{target.parent}: cannot be written: {error.strerror}") from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}{TEMPORARY_MARK}", dir=target.parent))
            os.replace(target, old / "old")
            try:
                os.replace(temporary, target)
            except OSError:
                os.replace(old / "old", target)
                raise
            finally:
                shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ResourceError(f"{target}: cannot be written: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_directory(target.parent)


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
