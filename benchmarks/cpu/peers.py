"""The coders for weights that are compared: the presets of Unweight, and zipnn."""

import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash

from benchmarks.cpu.measure import Run, Stopwatch
from benchmarks.data.dataset import DataSet
from unweight.archive.writer import MIN_CODED_BYTES
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.progress import NoProgress
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import preset
from unweight_codecs.tensor_codec import EncodedTensor, decode_tensor, encode_tensor
from unweight_codecs.tensor_spec import TensorSpec

ZIPNN_DTYPES: Final = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclass(frozen=True, slots=True)
class UnweightCoder:
    """A preset with all checksums, as in a file but without file I/O.

    Attributes:
        preset: Name of the preset.
        joined: Code the bytes of all tensors as one, which is what the peers get, instead of
            tensor by tensor.
    """

    preset: str
    joined: bool = False

    @property
    def name(self) -> str:
        """``unweight``, the preset, and whether the tensors are joined."""
        return f"unweight {self.preset}{', joined' if self.joined else ''}"

    def run(self, data: DataSet) -> Run:
        """Encode and decode every tensor, and compare."""
        pipeline = preset(self.preset)
        if self.joined:
            data = data.as_one_tensor()
        with Stopwatch() as encoding:
            coded = [_encode(pipeline, spec, words) for spec, words in data.tensors]
        with Stopwatch() as decoding:
            pieces = [
                _decode(pipeline, each, words)
                for each, (_, words) in zip(coded, data.tensors, strict=True)
            ]
            digests = tuple(digest_of(each) for each in pieces)
        with Stopwatch() as comparing:
            same = all(
                _same(words, each) for (_, words), each in zip(data.tensors, pieces, strict=True)
            )
        if not same or digests != data.digests:
            raise wrong(self.name, data)
        return Run(
            coded_bytes=sum(
                each.size if each else words.size
                for each, (_, words) in zip(coded, data.tensors, strict=True)
            ),
            encode_seconds=encoding.seconds,
            decode_seconds=decoding.seconds,
            check_seconds=decoding.seconds + comparing.seconds,
        )

    def file_bytes(self, data: DataSet) -> int | None:
        """Return the size of the file that ``compress`` writes, header and manifest included."""
        return None if self.joined else file_bytes_of(data, CompressOptions(preset=self.preset))


class ZipnnCoder:
    """zipnn on the bytes of all tensors at once, which suits it better than one at a time."""

    name = "zipnn"

    def __init__(self) -> None:
        """Load zipnn and torch, which it needs."""
        importlib.import_module("torch").set_num_threads(1)
        self._zipnn: Any = importlib.import_module("zipnn")

    def run(self, data: DataSet) -> Run:
        """Encode and decode; ``data`` must be mostly BF16, F16 or F32."""
        dtype = ZIPNN_DTYPES[data.dtype]
        coder = self._zipnn.ZipNN(bytearray_dtype=dtype, input_format="byte", threads=1)
        source = data.joined()
        scratch = bytearray(source)  # zipnn reorders the bits of its input in place
        with Stopwatch() as encoding:
            coded = coder.compress(scratch)
        coded_bytes = len(coded)
        with Stopwatch() as decoding:
            restored = coder.decompress(coded)
        if restored != source:
            raise wrong(self.name, data)
        return Run(coded_bytes, encoding.seconds, decoding.seconds)

    def file_bytes(self, data: DataSet) -> None:
        """Return None: zipnn is measured on bytes."""


def _encode(pipeline: Pipeline, spec: TensorSpec, words: Bytes) -> EncodedTensor | None:
    """Return the coded tensor; None for one that a file would store as it is."""
    return encode_tensor(pipeline, spec, words) if words.size >= MIN_CODED_BYTES else None


def _decode(pipeline: Pipeline, coded: EncodedTensor | None, words: Bytes) -> list[Bytes]:
    return decode_tensor(pipeline, coded) if coded else [words]


def file_bytes_of(data: DataSet, options: CompressOptions) -> int:
    """Return the size of the file that ``compress`` writes, header and manifest included."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "coded").with_suffix(data.path.suffix)
        compress(data.path, target, options, NoProgress())
        return target.stat().st_size


def digest_of(pieces: list[Bytes]) -> str:
    """Return the XXH3-64 of a tensor in pieces."""
    digest = xxhash.xxh3_64()
    for piece in pieces:
        digest.update(piece.data)
    return digest.hexdigest()


def _same(words: Bytes, pieces: list[Bytes]) -> bool:
    at = 0
    for piece in pieces:
        if not np.array_equal(words[at : at + piece.size], piece):
            return False
        at += piece.size
    return at == words.size


def wrong(coder: str, data: DataSet) -> IntegrityError:
    """Return the error for a coder that does not give back what it got."""
    return IntegrityError(f"{coder} does not give {data.name} back bit for bit")
