"""safetensors files for tests, written byte by byte and read by the reference library too."""

import json
import struct
from pathlib import Path
from typing import Any

import safetensors

from unweight.containers import registry
from unweight.containers.base import ContainerIndex, FileSource


def framed(header: bytes, data: bytes = b"") -> bytes:
    """Return a file of any header text."""
    return struct.pack("<Q", len(header)) + header + data


def file_of(header: dict[str, Any], data: bytes = b"") -> bytes:
    """Return a file."""
    return framed(json.dumps(header).encode(), data)


def tensor(
    dtype: object = "U8", shape: object = (4,), data_offsets: object = (0, 4)
) -> dict[str, object]:
    """Return an entry of the header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


def write_and_read(path: Path, content: bytes) -> ContainerIndex:
    """Write a file and return its index."""
    path.write_bytes(content)
    with FileSource(path) as source:
        return registry.read_index(source)


def read_by_reference(content: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the tensors that the reference library reads, by name."""
    return safetensors.deserialize(content)  # type: ignore[no-untyped-call,no-any-return]


def refused_by_reference(content: bytes) -> bool:
    """Return whether the reference library refuses a file."""
    try:
        read_by_reference(content)
    except safetensors.SafetensorError:
        return True
    return False
