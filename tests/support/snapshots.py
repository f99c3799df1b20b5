"""Model directories for tests: shards of one-byte tensors, and the index that lists them."""

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tests.support.models import Tensor, write_model

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def write_tiny(path: Path, *names: str) -> Path:
    """Write a model with one-byte tensors of these names."""
    return write_model(path, {name: Tensor("U8", (1,), b"\0") for name in names}, {})


def write_index(path: Path, weight_map: object, **other: object) -> Path:
    """Write the index of a sharded model."""
    path.write_text(json.dumps({"weight_map": weight_map, **other}), encoding="utf-8")
    return path


def write_sharded(root: Path) -> Path:
    """Write a directory with two shards, their index and a configuration file."""
    write_tiny(root / FIRST, "a", "b")
    write_tiny(root / SECOND, "c")
    write_index(root / INDEX, {"a": FIRST, "b": FIRST, "c": SECOND})
    (root / "config.json").write_text("{}")
    return root


def paths(files: Iterable[PurePosixPath]) -> list[str]:
    """Return paths as text."""
    return [str(file) for file in files]
