"""Paths as callers of the library give them."""

from os import PathLike, fspath
from pathlib import Path

from unweight_codecs.errors import UsageError, quoted

StrPath = str | PathLike[str]


def path_of(path: StrPath, parameter: str) -> Path:
    """Return the argument of ``parameter`` as a path.

    Raises UsageError for what is no path, and for an empty one, which Python would take for the
    current directory.
    """
    text = _text(path)
    if text is None:
        raise UsageError(f"must be a path, not {quoted(path)}", parameter=parameter)
    if not text:
        raise UsageError("must be a path, not empty", parameter=parameter)
    if "\0" in text:
        raise UsageError("must be a path, without a zero byte", parameter=parameter)
    return Path(text)


def optional_path(path: StrPath | None, parameter: str) -> Path | None:
    """Return what ``path_of`` does, or None for None."""
    return None if path is None else path_of(path, parameter)


def _text(path: object) -> str | None:
    """Return a path as text; None for paths of bytes and for what is no path at all."""
    text = fspath(path) if isinstance(path, PathLike) else path
    return text if isinstance(text, str) else None
