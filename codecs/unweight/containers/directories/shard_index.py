"""The index of a sharded model: ``*.safetensors.index.json`` says which file holds which tensor."""

import re
from pathlib import Path, PurePosixPath
from typing import Final

from unweight.containers.base import FileSource
from unweight.containers.registry import read_index
from unweight.containers.strict_json import parse_object
from unweight_codecs.errors import FormatError, quoted

MAX_INDEX_BYTES: Final = 100_000_000

_UNSAFE: Final = re.compile(r"[\\\0]|[A-Za-z]:")


def read_shard_index(path: Path) -> dict[PurePosixPath, list[str]]:
    """Read the index at ``path`` and return the tensor names listed for each shard.

    Shard paths are relative to the folder of the index and never lead out of it by their name.
    Raises FormatError for anything else; ``metadata`` (the total size) is a hint and is ignored.
    """
    with FileSource(path) as source:
        if source.size > MAX_INDEX_BYTES:
            raise FormatError(f"{path}: {source.size} bytes are too many for a shard index")
        document = parse_object(source.read_at(0, source.size), f"{path}: index")
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict):
        raise FormatError(f"{path}: index has no weight_map object")
    shards: dict[PurePosixPath, list[str]] = {}
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str):
            raise FormatError(f"{path}: weight_map of {quoted(tensor)} is not a file name")
        shards.setdefault(_checked_shard(shard, path), []).append(tensor)
    return shards


def check_shard(path: Path, tensors: list[str], index: Path) -> None:
    """Check that the shard at ``path`` holds all ``tensors`` that ``index`` lists for it.

    Raises FormatError that names the first missing tensor. More tensors in the shard are fine.
    """
    with FileSource(path) as source:
        present = {entry.spec.name for entry in read_index(source).tensors}
    missing = [tensor for tensor in tensors if tensor not in present]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise FormatError(
            f"{index}: lists tensor {quoted(missing[0])}{more} in {path.name}, "
            "which does not contain it",
            hint="index and shards are of different versions: download them together",
        )


def _checked_shard(name: str, index: Path) -> PurePosixPath:
    shard = PurePosixPath(name)
    if not shard.parts or shard.is_absolute() or ".." in shard.parts or _UNSAFE.search(name):
        raise FormatError(
            f"{index}: shard name {quoted(name)} is refused",
            hint="shards must lie in the folder of the index",
        )
    return shard
