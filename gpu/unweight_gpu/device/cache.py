"""Files that a user keeps between runs to save time: measurements, compiled kernels."""

import os
import secrets
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of this user's cache; it may not exist yet."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "unweight"


def replace_file(file: Path, data: bytes) -> None:
    """Write a file: all of it or nothing, for another process may do so at the same time.

    Folders that are missing are made. Raises OSError.
    """
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
