"""Model files for tests, written byte by byte and without the library under test."""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to write."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def gaussian(dtype: str, shape: tuple[int, ...], seed: int, octaves: int = 0) -> Tensor:
    """Return normally distributed weights, which compress like trained ones.

    The scales of the rows spread over ``octaves``.
    """
    generator = np.random.default_rng(seed)
    values = generator.normal(0, 0.02, shape)
    if octaves:
        values *= 2.0 ** generator.uniform(-octaves, 0, (shape[0], 1))
    raw = values.astype("<f4").tobytes()
    if dtype == "BF16":
        raw = np.frombuffer(raw, "<u2")[1::2].tobytes()
    return Tensor(dtype, shape, raw)


def noise(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return random bytes, which do not compress."""
    return Tensor("U8", shape, np.random.default_rng(seed).bytes(math.prod(shape)))


def write_model(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Path:
    """Write a safetensors file and return its path."""
    document: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name, tensor in tensors.items():
        end = at + len(tensor.data)
        document[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(document).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(tensor.data for tensor in tensors.values())
    )
    return path


def small_model(path: Path) -> Path:
    """Write about 40 kB of tensors: two that are coded, one of noise, a tiny and an empty one."""
    tensors = {
        "embed.weight": gaussian("BF16", (96, 128), 1, octaves=8),
        "noise": noise((700,), 2),
        "norm.bias": gaussian("F32", (3,), 3),
        "nothing": Tensor("I64", (0, 4), b""),
        "proj.weight": gaussian("F32", (40, 64), 4),
    }
    return write_model(path, tensors, {"format": "pt"})


# Small chunks and contexts, so that a small file has every part that a file can have.
SMALL_MODEL_STAGES = ("pack:chunk_log2=12", "tile_svd:classes=4")


def large_model(path: Path, megabytes: int) -> Path:
    """Write a file of BF16 tensors of one megabyte each."""
    block = gaussian("BF16", (1024, 500), 5)
    return write_model(path, {f"layer.{k}.weight": block for k in range(megabytes)})


def sparse_model(path: Path, mebibytes: int) -> Path:
    """Write one BF16 tensor of zeros with weights here and there; holes take no disk space."""
    nbytes = mebibytes << 20
    columns = 4096
    entry = {
        "dtype": "BF16",
        "shape": [nbytes // (2 * columns), columns],
        "data_offsets": [0, nbytes],
    }
    text = json.dumps({"weight": entry}).encode()
    block = gaussian("BF16", (1 << 18,), 6).data
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + nbytes)
        for at in range(0, nbytes, 1 << 26):
            file.seek(8 + len(text) + at)
            file.write(block)
    return path
