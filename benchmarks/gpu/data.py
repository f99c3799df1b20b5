"""What a device is measured with: matrices of a trained look, coded once by the package itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.dataset import Tensor, load
from unweight_codecs.accelerators import SPAN_CHUNKS, CodedSpan
from unweight_codecs.bounded.float_words import words_of_values
from unweight_codecs.errors import UsageError
from unweight_codecs.parallel import Workers
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_codec import EncodedTensor, encode_tensor, spans_of
from unweight_codecs.tensor_spec import TensorSpec

Words = NDArray[np.uint16]
Shape = tuple[int, int]

# The matrices of one layer of Llama 3 8B: 218 million weights.
LAYER: Final[Mapping[str, Shape]] = {
    "q_proj": (4096, 4096),
    "k_proj": (1024, 4096),
    "v_proj": (1024, 4096),
    "o_proj": (4096, 4096),
    "gate_proj": (14336, 4096),
    "up_proj": (14336, 4096),
    "down_proj": (4096, 14336),
}
_DEVIATION: Final = 0.02
_OCTAVES: Final = 0.5  # standard deviation of the rows' scales, as a power of two


@dataclass(frozen=True, slots=True)
class Layer:
    """Matrices that are decoded in one launch, as BF16 words u16 [rows, cols]."""

    name: str
    matrices: Mapping[str, Words]

    @property
    def weights(self) -> int:
        """Weights of all matrices."""
        return sum(words.size for words in self.matrices.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices as BF16."""
        return 2 * self.weights

    def tensors(self, copies: int = 1) -> Iterator[Tensor]:
        """Yield the matrices as the tensors of a file, ``copies`` times."""
        for copy in range(copies):
            for name, words in self.matrices.items():
                spec = TensorSpec(f"layers.{copy}.{name}.weight", "BF16", words.shape)
                yield spec, words.reshape(-1).view(np.uint8)


def trained(shape: Shape, seed: int) -> Words:
    """Return BF16 words of a trained look: normally distributed, each row at a scale of its own."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape, np.float32)
    values *= np.float32(_DEVIATION) * np.exp2(rng.normal(0, _OCTAVES, (shape[0], 1))).astype("f4")
    return words_of_values(values.reshape(-1), "BF16").view(np.uint16).reshape(shape)


def made_up_layer(shapes: Mapping[str, Shape]) -> Layer:
    """Return a layer of random matrices, made in threads."""
    with Workers(0) as workers:
        made = workers.ordered(
            lambda item: trained(item[1], item[0]), [*enumerate(shapes.values())]
        )
        return Layer("random", dict(zip(shapes, made, strict=True)))


def model_layer(path: Path, max_bytes: int) -> Layer:
    """Return the first BF16 matrices of a file that take at most so many bytes together.

    Raises UsageError if there are none.
    """
    found, total = dict[str, Words](), 0
    for spec, words in load(path.name, path).tensors:
        if spec.dtype == "BF16" and len(spec.shape) == 2 and total + words.size <= max_bytes:
            rows, cols = spec.shape
            found[spec.name] = words.view(np.uint16).reshape(rows, cols)
            total += words.size
    if not found:
        raise UsageError(f"{path}: no BF16 matrix of at most {max_bytes} bytes")
    return Layer(path.name, found)


def in_chunks(pipeline: Pipeline, chunk_log2: int) -> Pipeline:
    """Return a pipeline with chunks of another length."""
    return pipeline_of(pipeline.name, (*pipeline.stages[:-1], Pack(chunk_log2)))


def coded(
    pipeline: Pipeline, tensors: Sequence[Tensor], epsilon: float = 0.0
) -> list[EncodedTensor | None]:
    """Encode tensors in threads; None for each that would not shrink."""

    def encode(tensor: Tensor) -> EncodedTensor | None:
        return encode_tensor(pipeline, *tensor, epsilon)

    with Workers(0) as workers:
        return list(workers.ordered(encode, tensors))


def coded_layer(layer: Layer, preset: str, chunk_log2: int) -> tuple[Layer, list[CodedSpan]]:
    """Encode a layer; returns those of its matrices that shrink, and a span of all of each."""
    pipeline = in_chunks(PRESETS[preset], chunk_log2)
    found = zip(layer.matrices.items(), coded(pipeline, list(layer.tensors())), strict=True)
    shrunk = [(name, words, whole(pipeline, each)) for (name, words), each in found if each]
    return Layer(layer.name, {name: words for name, words, _ in shrunk}), [s for *_, s in shrunk]


def whole(pipeline: Pipeline, coded_tensor: EncodedTensor) -> CodedSpan:
    """Return one span of all chunks of a tensor."""
    (span,) = spans_of(pipeline, coded_tensor, len(coded_tensor.spans) * SPAN_CHUNKS)
    return span
