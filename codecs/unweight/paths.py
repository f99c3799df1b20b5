"""Paths as callers of the library give them."""

from os import PathLike
from pathlib import Path
from typing import overload

from unweight_codecs.errors import UsageError

StrPath = str | PathLike[str]


@overload
def path_of(path: StrPath, parameter: str) -> Path: ...
@overload
def path_of(path: StrPath | None, parameter: str) -> Path | None: ...
def path_of(path: StrPath | None, parameter: str) -> Path | None:
    """Return the argument of ``parameter`` as a path.

    Raises UsageError for an empty one, which Python would take for the current directory.
    """
    if path is None:
        return None
    if not str(path):
        raise UsageError("must be a path, not empty", parameter=parameter)
    return Path(path)
