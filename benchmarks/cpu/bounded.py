"""The error-bounded mode, beside the block quantisations of ggml at the same weight error."""

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cpu.measure import Run, Stopwatch
from benchmarks.cpu.peers import digest_of, file_bytes_of
from benchmarks.data.dataset import DataSet
from unweight.archive.writer import MIN_CODED_BYTES
from unweight.operations.compress import CompressOptions
from unweight_codecs.bounded.float_words import may_change, values_of, words_of_values
from unweight_codecs.bounded.levels import squared_error
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import bounded_preset, preset
from unweight_codecs.tensor_codec import EncodedTensor, decode_tensor, encode_smallest
from unweight_codecs.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class BoundedCoder:
    """A preset within an error bound, as ``compress`` applies it, without file I/O.

    Attributes:
        preset: Name of the preset.
        epsilon: Relative error allowed in every matrix.
        peer: The coder whose error that is.
    """

    preset: str
    epsilon: float
    peer: str

    @property
    def name(self) -> str:
        """``unweight``, the preset, and whose error it may make."""
        return f"unweight {self.preset}, error of {self.peer}"

    def run(self, data: DataSet) -> Run:
        """Encode and decode every tensor; raises IntegrityError above the bound."""
        with Stopwatch() as encoding:
            coded = [self._encode(spec, words) for spec, words in data.tensors]
        with Stopwatch() as decoding:
            pieces = [
                decode_tensor(*each) if each else [words]
                for each, (_, words) in zip(coded, data.tensors, strict=True)
            ]
            for each in pieces:
                digest_of(each)  # as a decoder checks tensors
        restored = [np.concatenate(each) for each in pieces]
        with Stopwatch() as comparing:
            error = _error(data, restored)
        if not error <= self.epsilon:
            raise IntegrityError(f"{self.name} makes an error of {error:g} in {data.name}")
        sizes = (each[1].size if each else None for each in coded)
        return Run(
            coded_bytes=sum(
                words.size if size is None else size
                for size, (_, words) in zip(sizes, data.tensors, strict=True)
            ),
            encode_seconds=encoding.seconds,
            decode_seconds=decoding.seconds,
            check_seconds=decoding.seconds + comparing.seconds,
            error=error,
        )

    def file_bytes(self, data: DataSet) -> int:
        """Return the size of the file that ``compress`` writes, header and manifest included."""
        return file_bytes_of(data, CompressOptions(preset=self.preset, epsilon=self.epsilon))

    def _encode(self, spec: TensorSpec, words: Bytes) -> tuple[Pipeline, EncodedTensor] | None:
        if words.size < MIN_CODED_BYTES:
            return None
        choices = [(preset(self.preset), 0.0)]
        if may_change(spec):
            choices.append((bounded_preset(self.preset), self.epsilon))
        return encode_smallest(choices, spec, words)


class BlockCoder:
    """A block quantisation as the package ``gguf`` does it: of matrices, and back to the dtype.

    Other tensors stay as they are.
    """

    def __init__(self, name: str) -> None:
        """Load the package; ``name`` is that of the type in ggml."""
        self.name = name
        self._gguf: Any = importlib.import_module("gguf")
        self._type = self._gguf.GGMLQuantizationType[name]

    def run(self, data: DataSet) -> Run:
        """Quantise and restore every matrix of floats."""
        with Stopwatch() as encoding:
            coded = [self._quantised(spec, words) for spec, words in data.tensors]
        with Stopwatch() as decoding:
            restored = [
                self._restored(spec, blocks) if may_change(spec) else blocks
                for (spec, _), blocks in zip(data.tensors, coded, strict=True)
            ]
        size = sum(each.nbytes for each in coded)
        return Run(size, encoding.seconds, decoding.seconds, error=_error(data, restored))

    def file_bytes(self, data: DataSet) -> None:
        """Return None: blocks are measured in memory."""

    def _quantised(self, spec: TensorSpec, words: Bytes) -> NDArray[np.uint8]:
        if not may_change(spec):
            return words
        blocks: NDArray[np.uint8] = self._gguf.quantize(
            values_of(words, spec.dtype).reshape(spec.shape), self._type
        )
        return blocks

    def _restored(self, spec: TensorSpec, blocks: NDArray[np.uint8]) -> Bytes:
        values: NDArray[np.float32] = self._gguf.dequantize(blocks, self._type)
        return words_of_values(values.reshape(-1), spec.dtype)


def _error(data: DataSet, restored: list[Bytes]) -> float:
    """Return the relative error of all matrices together; other tensors must not have changed."""
    squares = errors = 0.0
    for (spec, words), now in zip(data.tensors, restored, strict=True):
        if not may_change(spec):
            if not np.array_equal(words, now):
                raise IntegrityError(f"{spec.name} of {data.name} has changed")
            continue
        square, error, _ = squared_error(words, now, spec.dtype)
        squares, errors = squares + square, errors + error
    return float(np.sqrt(errors / squares))
