"""GGUF files for tests, written byte by byte and not by the writer under test."""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.models import gaussian, noise
from unweight.containers.base import ContainerIndex, FileSource
from unweight.containers.gguf.ggml_types import GGML_TYPES
from unweight.containers.gguf.reader import read_index
from unweight.containers.gguf.values import ValueType
from unweight_codecs.tensor_spec import DType

F32, Q4_0, Q4_1, I8, BF16 = 0, 2, 3, 24, 30  # ids of GGML types


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


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to write; ``ne`` has the row first."""

    name: bytes
    type_id: int
    ne: tuple[int, ...]
    data: bytes


def filled(length: int, filler: bytes) -> bytes:
    """Return ``filler`` repeated up to ``length`` bytes."""
    return (filler * length)[:length]


def model_of(
    keys: Sequence[bytes],
    tensors: Sequence[NewTensor],
    alignment: int = 32,
    version: int = 3,
    filler: bytes = b"\0",
    last_padding: bool = True,
) -> bytes:
    """Return a file whose tensor data have the order of its table; ``filler`` is between them."""
    table, data = [], b""
    for each in tensors:
        data += filled(-len(data) % alignment, filler)
        table.append(tensor(each.name, each.ne, len(data), each.type_id))
        data += each.data
    if last_padding:
        data += filled(-len(data) % alignment, filler)
    return file_of(keys, table, data, alignment, version)


def unit_bytes(dtype: DType) -> int:
    """Return the bytes of a block, or of an element that stands alone."""
    return dtype.nbytes((dtype.block_elements,))


def blocks(type_id: int, count: int, seed: int, mean: float = 8, spread: float = 2) -> bytes:
    """Return blocks whose half bytes are normally distributed, so that they compress."""
    shape = (2, count * unit_bytes(GGML_TYPES[type_id]))
    values = np.random.default_rng(seed).normal(mean, spread, shape)
    low, high = np.clip(values, 0, 15).astype(np.uint8)
    return np.asarray(low | high << 4, np.uint8).tobytes()


def vocabulary(count: int) -> bytes:
    """Return an encoded array of strings, no two alike."""
    return array(ValueType.STRING, count, b"".join(string(b"token %d" % k) for k in range(count)))


def centred_blocks(name: str, seed: int, count: int = 3000) -> bytes:
    """Return blocks of Q4_1 or Q5_1 whose quants crowd around the one that stands for zero.

    Their scales and minimums are never far from each other.
    """
    rng = np.random.default_rng(seed)
    levels = {"Q4_1": 16, "Q5_1": 32}[name]
    zero = rng.uniform(0.3 * levels, 0.7 * levels, (count, 1))
    quants = np.clip(np.rint(rng.normal(zero, levels / 16, (count, 32))), 0, levels - 1)
    scale = np.exp2(rng.uniform(-10, -6, (count, 1)))
    halves = np.hstack([scale, -scale * zero]).astype("<f2").view(np.uint8)
    low, high = quants.astype(np.uint8) & 15, quants.astype(np.uint8) >> 4
    parts = [halves, low[:, :16] | low[:, 16:] << 4]
    if name == "Q5_1":
        parts.insert(1, np.packbits(high, axis=1, bitorder="little"))
    return np.hstack(parts).tobytes()


def small_gguf(path: Path) -> Path:
    """Write a file with everything: the tensors have the names of ``models.small_model``."""
    keys = [
        text(b"general.architecture", b"llama"),
        aligned(64),
        text(b"general.name", b"small"),
        key(b"tokenizer.tokens", ValueType.ARRAY, vocabulary(100)),
    ]
    tensors = [
        NewTensor(b"embed.weight", BF16, (128, 96), gaussian("BF16", (96, 128), 1, octaves=8).data),
        NewTensor(b"noise", I8, (700,), noise((700,), 2).data),
        NewTensor(b"norm.bias", F32, (3,), gaussian("F32", (3,), 3).data),
        NewTensor(b"nothing", F32, (4, 0), b""),
        NewTensor(b"proj.weight", Q4_1, (320, 60), blocks(Q4_1, 600, 4)),
    ]
    path.write_bytes(model_of(keys, tensors, alignment=64, filler=b"pad"))
    return path
