"""A model file with its tensors in memory, and how safetensors files are written."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from unweight.containers.base import FileSource
from unweight.containers.registry import read_index
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.tensor_spec import TensorSpec, dtype_named

Tensor = tuple[TensorSpec, Bytes]


@dataclass(frozen=True, slots=True)
class DataSet:
    """A safetensors or GGUF file with its tensors in memory.

    Attributes:
        name: What the tables call it.
        path: The file.
        dtype: The dtype that most of its bytes have.
        tensors: Every tensor with its bytes, in file order.
        digests: XXH3-64 of every tensor, in the same order.
    """

    name: str
    path: Path
    dtype: str
    tensors: tuple[Tensor, ...]
    digests: tuple[str, ...]

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, without the header of the file."""
        return sum(words.size for _, words in self.tensors)

    def joined(self) -> bytes:
        """Return the bytes of all tensors, one after the other."""
        return b"".join(words.tobytes() for _, words in self.tensors)

    def as_one_tensor(self) -> "DataSet":
        """Return the same bytes as a single tensor of the dtype that most of them have."""
        return self._with_one_tensor("joined", self.dtype, self.joined())

    def as_bytes(self) -> "DataSet":
        """Return the whole file, header and all, as a single tensor of bytes."""
        return self._with_one_tensor("file", "U8", self.path.read_bytes())

    def _with_one_tensor(self, name: str, dtype: str, data: bytes) -> "DataSet":
        words = np.frombuffer(data, np.uint8)
        spec = TensorSpec(name, dtype, (8 * words.size // dtype_named(dtype).bits,))
        digest = xxhash.xxh3_64_hexdigest(words.data)
        return DataSet(self.name, self.path, dtype, ((spec, words),), (digest,))


def load(name: str, path: Path) -> DataSet:
    """Read a safetensors or GGUF file into memory."""
    with FileSource(path) as file:
        tensors = tuple(
            (entry.spec, np.frombuffer(file.read_at(entry.offset, entry.nbytes), np.uint8))
            for entry in read_index(file).tensors
        )
    sizes = Counter[str]()
    for spec, words in tensors:
        sizes[spec.dtype] += words.size
    digests = tuple(xxhash.xxh3_64_hexdigest(words.data) for _, words in tensors)
    return DataSet(name, path, sizes.most_common(1)[0][0], tensors, digests)


def write_safetensors(path: Path, tensors: Iterable[Tensor]) -> None:
    """Write a safetensors file; the header is padded to 8 bytes, as the reference library does."""
    header, pieces, offset = {}, [], 0
    for spec, words in tensors:
        end = offset + words.size
        header[spec.name] = _header_entry(spec, offset, end)
        pieces.append(words)
        offset = end
    with path.open("wb") as file:
        file.write(_header_bytes(header))
        for words in pieces:
            file.write(words.data)


def write_sparse(path: Path, side: int) -> None:
    """Write a BF16 matrix of ``side`` rows and columns of zeros, if possible as a sparse file."""
    spec = TensorSpec("weight", "BF16", (side, side))
    header = _header_bytes({spec.name: _header_entry(spec, 0, spec.nbytes)})
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + spec.nbytes)


def _header_entry(spec: TensorSpec, begin: int, end: int) -> dict[str, object]:
    return {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": (begin, end)}


def _header_bytes(header: dict[str, dict[str, object]]) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
