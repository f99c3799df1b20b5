"""Permissions, which the superuser does not have to heed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def ordinary_user(*owned: Path) -> Iterator[None]:
    """Act as an ordinary user; as the superuser, become one who owns only ``owned``."""
    if os.geteuid() != 0:
        yield
        return
    for path in owned:
        os.chown(path, NOBODY, NOBODY)
    # The real id as well, by which access(2) decides; the saved one leads back.
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take the permission to write to ``folder`` away."""
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(0o755)
