"""What the user names, as transformers opens it: restored, and with its configuration.

A checkpoint may be a model directory, one safetensors file, a shard index or a GGUF file, and any
of them may be compressed. Weights are restored into a temporary directory that is removed when the
block ends, however it ends.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unweight.archive import is_archive_at
from unweight.containers.base import FileSource
from unweight.containers.directories.snapshot import INDEX_SUFFIX, is_index_path, open_snapshot
from unweight.containers.registry import sniff
from unweight.evaluation.model.tokenizer import NO_TOKENIZER
from unweight.operations.decompress import decompress
from unweight.operations.files import open_job
from unweight.operations.inspect.header import inspect_header
from unweight.operations.progress import Progress
from unweight_codecs.errors import ResourceError, UsageError

CONFIGURATION: Final = "config.json"
GGUF: Final = "gguf"
# The names that transformers looks for in a directory.
WEIGHTS: Final = "model.safetensors"
INDEX: Final = f"model{INDEX_SUFFIX}"
MORE_ROOM: Final = "TMPDIR=DIR names a folder with more room"


@dataclass(frozen=True, slots=True)
class PlainCheckpoint:
    """Plain weights that transformers can load.

    Attributes:
        name: What the user called it.
        weights: A directory with config.json and safetensors under the names that transformers
            expects, or a GGUF file.
        tokenizer: Where its tokenizer is: a directory or a GGUF file.
    """

    name: Path
    weights: Path
    tokenizer: Path


def archives_of(path: Path) -> list[Path]:
    """Return the files behind ``path`` that Unweight has compressed."""
    return [file for file, _ in open_job(path).models if is_archive_at(file)]


def is_bit_exact(archives: list[Path]) -> bool:
    """Tell whether these compressed files give back every bit of their originals."""
    return all(inspect_header(archive).epsilon == 0 for archive in archives)


def definition_of(path: Path) -> Path | None:
    """Return the directory whose config.json belongs to a checkpoint: itself, or the one it is in.

    None when there is no such file.
    """
    folder = path if path.is_dir() else path.parent
    return folder if (folder / CONFIGURATION).is_file() else None


def find_definition(path: Path, given: Path | None, other: Path | None) -> Path | None:
    """Return the directory with config.json and tokenizer of a checkpoint, compressed or not.

    Args:
        path: The checkpoint.
        given: The directory that was asked for; None to look for one.
        other: A checkpoint of the same model, whose directory will do as well.

    Returns:
        The directory; None for a GGUF file without ``given``, which has what it needs inside.

    Raises:
        UsageError: There is none, or it is not clear which model of several is meant.
    """
    if given is not None and not (given / CONFIGURATION).is_file():
        raise UsageError(f"{given}: has no {CONFIGURATION}", hint=NO_TOKENIZER)
    if given is not None or GGUF in model_files(path):
        return given
    found = definition_of(path) or (definition_of(other) if other else None)
    if found is None:
        where = "in it" if path.is_dir() else "beside it"
        raise UsageError(f"{path}: no {CONFIGURATION} {where}", hint=NO_TOKENIZER)
    return found


@contextmanager
def open_checkpoint(
    path: Path,
    given: Path | None = None,
    other: Path | None = None,
    *,
    threads: int,
    progress: Progress,
) -> Iterator[PlainCheckpoint]:
    """Yield the plain weights of ``path``, restored if they are compressed.

    Arguments are those of ``find_definition``, and so are errors; and there is ResourceError for
    want of room, and what ``decompress`` raises about damaged files.
    """
    definition = find_definition(path, given, other)
    with (
        open_weights(path, threads=threads, progress=progress) as plain,
        tempfile.TemporaryDirectory(prefix="unweight-") as folder,
    ):
        files = model_files(plain)
        weights = files.get(GGUF)
        if weights is None and definition is not None:
            files[CONFIGURATION] = definition / CONFIGURATION
            weights = _linked(files, Path(folder))
        assert weights is not None  # noqa: S101 - see find_definition
        yield PlainCheckpoint(path, weights, definition or weights)


@contextmanager
def open_weights(path: Path, *, threads: int, progress: Progress) -> Iterator[Path]:
    """Yield ``path`` itself, or where it is restored while the block runs if it is compressed.

    Raises ResourceError for want of room, and what ``decompress`` raises about damaged files.
    """
    if not archives_of(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="unweight-") as folder:
        yield _restore(path, Path(folder), threads=threads, progress=progress)


def _restore(path: Path, folder: Path, *, threads: int, progress: Progress) -> Path:
    """Restore ``path`` into ``folder``; returns the file, index or directory."""
    is_tree = path.is_dir() or is_index_path(path)
    target = folder / "restored" if is_tree else folder / f"restored.{_container(path)}"
    with temporary_files():
        decompress(path, target, threads=threads, force=False, progress=progress)
    return target / path.name if is_index_path(path) and not path.is_dir() else target


@contextmanager
def temporary_files() -> Iterator[None]:
    """Run a block that writes into a temporary directory; its errors say how to choose another."""
    try:
        yield
    except ResourceError as error:
        raise ResourceError(error.message, hint=MORE_ROOM) from error


def model_files(path: Path) -> dict[str, Path]:
    """Return the files of plain weights by the names that transformers knows, or one as "gguf"."""
    if is_index_path(path) and not path.is_dir():
        shards = {str(name): path.parent / name for name in open_snapshot(path).models}
        return {**shards, INDEX: path}
    if not path.is_dir():
        return {GGUF if _container(path) == GGUF else WEIGHTS: path}
    models = {str(name): file for file, name in open_job(path).models}
    if (path / INDEX).is_file():
        return {**models, INDEX: path / INDEX}
    if WEIGHTS in models:
        return {WEIGHTS: models[WEIGHTS]}
    if len(models) > 1:
        raise UsageError(f"{path}: holds {len(models)} model files", hint="name one of them")
    return model_files(next(iter(models.values())))


def _linked(files: Mapping[str, Path], folder: Path) -> Path:
    """Fill a new ``folder`` with links, so that there is nothing in it but what is meant."""
    for name, file in files.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    return folder


def _container(path: Path) -> str:
    with FileSource(path) as source:
        return sniff(source).name
