"""GGUF files for tests, written byte by byte and not by the writer under test."""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from unweight_codecs.containers.base import ContainerIndex, FileSource
from unweight_codecs.containers.gguf import read_index
from unweight_codecs.containers.gguf_values import ValueType

F32, Q4_0, I8 = 0, 2, 24  # ids of GGML types


def string(text: bytes) -> bytes:
    """Return an encoded string."""
    return struct.pack("<Q", len(text)) + text


def key(name: bytes, value_type: int, value: bytes) -> bytes:
    """Return a key-value of an encoded value."""
    return string(name) + struct.pack("<I", value_type) + value


def text(name: bytes, value: bytes) -> bytes:
    """Return a key-value of a string."""
    return key(name, ValueType.STRING, string(value))


def array(element_type: int, count: int, elements: bytes = b"") -> bytes:
    """Return an encoded array that says it has ``count`` elements."""
    return struct.pack("<IQ", element_type, count) + elements


def aligned(alignment: int) -> bytes:
    """Return the key-value of the alignment."""
    return key(b"general.alignment", ValueType.UINT32, struct.pack("<I", alignment))


def tensor(
    name: bytes = b"t", ne: Sequence[int] = (8,), offset: int = 0, type_id: int = F32
) -> bytes:
    """Return an entry of the tensor table; ``ne`` has the row first."""
    extents = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
    return string(name) + extents + struct.pack("<IQ", type_id, offset)


def start(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    """Return the first 24 bytes of a file."""
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def file_of(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    alignment: int = 32,
    version: int = 3,
) -> bytes:
    """Return a file; ``data`` follows the padding after the header."""
    header = start(len(tensors), len(keys), version) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data


class CountingSource(FileSource):
    """Remembers how many bytes were asked for."""

    asked = 0

    def read_at(self, offset: int, length: int) -> bytes:
        """Read as the base class does."""
        self.asked += length
        return super().read_at(offset, length)


def sparse(path: Path, content: bytes, size: int) -> CountingSource:
    """Write a file that takes no space after ``content`` and open it."""
    path.write_bytes(content)
    os.truncate(path, size)
    return CountingSource(path)


def write_and_read(path: Path, content: bytes) -> ContainerIndex:
    """Write a file and return its index."""
    path.write_bytes(content)
    with FileSource(path) as source:
        return read_index(source)
