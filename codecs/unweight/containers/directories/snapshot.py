"""A model directory: which of its files are models and which are carried along unchanged."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from unweight.containers.directories.boundary import Boundary
from unweight.containers.directories.gguf_splits import check_splits
from unweight.containers.directories.shard_index import check_shard, read_shard_index
from unweight.containers.registry import model_suffixes
from unweight_codecs.errors import FormatError, ResourceError, quoted

SHARD_SUFFIX: Final = ".safetensors"
INDEX_SUFFIX: Final = ".safetensors.index.json"
UNMANAGED: Final = frozenset({".git"})  # names of folders that are no part of any model
MAX_ENTRIES: Final = 100_000  # links to directories can multiply a small tree without end


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of one model directory, each list sorted by the bytes of the path.

    Attributes:
        root: The directory.
        models: Container files, relative to ``root``.
        carried: All other files, relative to ``root``; they are opaque. What is called ``.git``
            is left out: in a clone from a hub it holds every model a second time.
    """

    root: Path
    models: tuple[PurePosixPath, ...]
    carried: tuple[PurePosixPath, ...]

    def resolve(self, relative: PurePosixPath) -> Path:
        """Return the path to open for ``relative``; raises FormatError if it is outside by now."""
        path = self.root / relative
        Boundary(self.root).real_path(path)
        return path


def open_snapshot(path: Path) -> Snapshot:
    """List and check a model directory, or the shards that a ``*.safetensors.index.json`` names.

    Raises:
        FormatError: No model, an index that disagrees with its shards, a GGUF model of which a part
            is missing or of another model, a link that leads outside, or a file that is neither a
            regular file nor a directory.
        ResourceError: Something cannot be read.
    """
    if stat.S_ISDIR(_mode_of(path)):
        snapshot = _list_directory(path)
        indexes = [file for file in snapshot.carried if _is_index(file)]
    elif is_index_path(path):
        index = PurePosixPath(path.name)
        Boundary(path.parent).real_path(path)
        shards = (index.parent / shard for shard in read_shard_index(path))
        snapshot = Snapshot(path.parent, _in_byte_order(shards), (index,))
        indexes = [index]
    else:
        raise FormatError(f"{path}: neither a directory nor a file *{INDEX_SUFFIX}")
    if not snapshot.models:
        raise FormatError(
            f"{path}: no model found",
            hint=f"looked for {' and '.join(f'*{suffix}' for suffix in model_suffixes())} files, "
            "hidden ones excepted",
        )
    for index in indexes:
        _check_index(snapshot, index)
    check_splits(snapshot.root, snapshot.models)
    return snapshot


def is_index_path(path: Path) -> bool:
    """Tell by its name whether ``path`` stands for a sharded model."""
    return path.name.lower().endswith(INDEX_SUFFIX)


def _check_index(snapshot: Snapshot, index: PurePosixPath) -> None:
    index_path = snapshot.resolve(index)
    for shard, tensors in read_shard_index(index_path).items():
        relative = index.parent / shard
        if not os.path.isfile(snapshot.root / relative):
            raise FormatError(
                f"{index_path}: shard {quoted(str(shard))} is missing", hint="download it as well"
            )
        if not _is_model(relative, SHARD_SUFFIX):
            raise FormatError(
                f"{index_path}: shard {quoted(str(shard))} is not a visible *{SHARD_SUFFIX} file"
            )
        check_shard(snapshot.resolve(relative), tensors, index_path)


def _list_directory(root: Path) -> Snapshot:
    files = _in_byte_order(_walk(root))
    models = tuple(file for file in files if _is_model(file))
    carried = tuple(file for file in files if not _is_model(file))
    return Snapshot(root, models, carried)


def _walk(root: Path) -> Iterator[PurePosixPath]:
    """Yield every file below ``root``; raises for what cannot be part of a snapshot."""
    boundary = Boundary(root)
    entries = 0
    # Each folder comes with the real folders from the root to it: a link to one of them is a loop.
    top: tuple[str, ...] = (str(boundary.real_path(root)),)
    pending = [(PurePosixPath(), top)]
    while pending:
        folder, chain = pending.pop()
        for entry in _entries_of(root / folder):
            if entry.name in UNMANAGED:
                continue
            entries += 1
            if entries > MAX_ENTRIES:
                raise FormatError(f"{root}: more than {MAX_ENTRIES} files; is this one model?")
            real = os.path.join(chain[-1], entry.name)
            if entry.is_symlink():
                real = str(boundary.real_path(Path(entry.path)))
                if real in chain:
                    raise FormatError(f"{entry.path}: a link that leads in a circle")
            mode = _mode_of(entry)
            if stat.S_ISDIR(mode):
                pending.append((folder / entry.name, (*chain, real)))
            elif not stat.S_ISREG(mode):
                raise FormatError(f"{entry.path}: not a regular file", hint="remove it")
            elif not os.access(entry.path, os.R_OK):
                raise ResourceError(f"{entry.path}: cannot be read: permission denied")
            else:
                yield folder / entry.name


def _entries_of(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be read: {error.strerror}") from error


def _mode_of(path: Path | os.DirEntry[str]) -> int:
    try:
        return path.stat().st_mode
    except OSError as error:
        raise ResourceError(f"{os.fspath(path)}: cannot be read: {error.strerror}") from error


def _in_byte_order(files: Iterable[PurePosixPath]) -> tuple[PurePosixPath, ...]:
    return tuple(sorted(files, key=os.fsencode))


def _is_hidden(file: PurePosixPath) -> bool:
    return any(part.startswith(".") for part in file.parts)


def _is_model(file: PurePosixPath, suffix: str | tuple[str, ...] = ()) -> bool:
    return file.name.lower().endswith(suffix or model_suffixes()) and not _is_hidden(file)


def _is_index(file: PurePosixPath) -> bool:
    return file.name.lower().endswith(INDEX_SUFFIX) and not _is_hidden(file)
