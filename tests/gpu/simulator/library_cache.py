"""Compiled libraries, kept for later tests, for other processes and for later runs.

A library is found by a hash of all that it depends on, and ends with a hash of its own bytes: one
that was cut short or changed is made again, as loading it might end the process.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from unweight_gpu.device.cache import cache_folder, replace_file

KEPT_SECONDS: Final = 7 * 24 * 3600
_SEAL_BYTES: Final = hashlib.sha256().digest_size


def user_folder() -> Path | None:
    """Return where this user's libraries are kept; None where others may write, or we may not."""
    folder = cache_folder().with_name("unweight-tests") / "cuda-on-cpu"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return None
    is_ours = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if is_ours and os.access(folder, os.W_OK) else None


def kept(folder: Path, key: str, make: Callable[[], bytes]) -> Path:
    """Return the library of a key; what ``make`` returns if there is none, or a damaged one.

    Of several processes that ask at the same time, one makes it and the others wait.
    """
    library = folder / f"{key}.so"
    if not _is_whole(library):
        with _alone(folder / f"{key}.lock"):
            if not _is_whole(library):  # or another process has made it meanwhile
                _forget_unused(folder)
                data = make()
                replace_file(library, data + hashlib.sha256(data).digest())
    with contextlib.suppress(OSError):
        os.utime(library)
    return library


def _is_whole(library: Path) -> bool:
    try:
        data = library.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data[:-_SEAL_BYTES]).digest() == data[-_SEAL_BYTES:]


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same lock."""
    with lock.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_unused(folder: Path) -> None:
    """Remove what nobody has asked for in a while: every change of a kernel makes a library."""
    oldest = time.time() - KEPT_SECONDS
    for file in (*folder.glob("*.so"), *folder.glob("*.lock")):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()
