"""Load a checkpoint into device memory: compressed bytes go there, words never come back.

Every tensor is checked against its digest on the device, palettes too: they are expanded once for
it. What no kernel decodes, and what is stored as it was, is read by the processor and copied.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from unweight.archive import ArchiveReader
from unweight.containers.base import TensorEntry
from unweight_codecs.accelerators import CodedSpan, decode_on_host
from unweight_codecs.errors import IntegrityError, UsageError, quoted
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.decoding.obstacles import palette_obstacle, span_obstacle
from unweight_gpu.decoding.overlap import batches, overlapped
from unweight_gpu.decoding.transfer import PendingBatch, SpanRequest, StagingBuffer, Transfer
from unweight_gpu.device.interface import Array, StreamingDevice
from unweight_gpu.palette.codec import PaletteCodec
from unweight_gpu.palette.format import Layout, Palette
from unweight_gpu.palette.linear import LinearBackend, PaletteLinear

RESIDENT_BYTES: Final = 1 << 29  # of words: a layer of a model of 8 billion weights takes 0.4 GB


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A tensor in device memory: its bytes, u8 [nbytes], or a palette of it."""

    spec: TensorSpec
    words: Array | None = None
    palette: Palette | None = None

    @property
    def nbytes(self) -> int:
        """Device memory that it takes."""
        held = self.palette if self.palette is not None else self.words
        return 0 if held is None else int(held.nbytes)

    def linear(self, backend: LinearBackend) -> PaletteLinear:
        """Return a layer with these weights, [..., columns], as they are in memory.

        Raises UsageError for what is no BF16 matrix.
        """
        shape = self.spec.shape
        if self.spec.dtype != "BF16" or len(shape) < 2:
            what = f"tensor {quoted(self.spec.name)} is {self.spec.dtype} {list(shape)}"
            raise UsageError(f"{what}; a linear layer takes a BF16 matrix")
        layout, words = Layout(math.prod(shape[:-1]), shape[-1]), self.words
        if words is not None:
            words = words.view(np.uint16).reshape(layout.rows, layout.cols)
        return PaletteLinear(backend, layout, self.palette, words)


@dataclass(frozen=True, slots=True)
class _FileTensor:
    """A tensor of a file: a span of all its chunks, or None where it is stored."""

    source: TensorEntry
    here: TensorEntry
    span: CodedSpan | None

    @property
    def nbytes(self) -> int:
        return self.source.nbytes


@dataclass(frozen=True, slots=True)
class _PendingTensors:
    tensors: Sequence[_FileTensor]
    batch: PendingBatch
    number_of: Mapping[str, int]  # of the requests in the batch, by the name of the tensor


def load(
    path: Path,
    device: StreamingDevice,
    *,
    palettes: bool = False,
    batch_bytes: int = RESIDENT_BYTES,
) -> Iterator[DeviceTensor]:
    """Yield the tensors of an Unweight file, in file order, as they arrive on the device.

    With ``palettes``, matrices that can be one become palettes (``palette.format``), the others
    stay as they are. ``batch_bytes`` of words are decoded at a time, or one tensor if it is larger.
    The arrays of a batch share memory, which later batches may take once all of them are gone: keep
    a tensor until whatever uses it is done.

    Raises:
        FormatError: The file is not an Unweight file.
        IntegrityError: A chunk or tensor is not what its checksum or digest says.
        ResourceError: The device fails or has too little memory.
    """
    with ArchiveReader(path) as archive:
        loader = _Loader(archive, device, palettes=palettes)
        try:
            yield from loader.loaded(batch_bytes)
        finally:
            loader.close()


class _Loader:
    def __init__(self, archive: ArchiveReader, device: StreamingDevice, *, palettes: bool) -> None:
        self._archive, self._device, self._palettes = archive, device, palettes
        self._transfer, self._codec = Transfer(device), PaletteCodec(device)

    def loaded(self, batch_bytes: int) -> Iterator[DeviceTensor]:
        groups = batches(self._tensors(), lambda tensor: tensor.nbytes, batch_bytes)
        return overlapped(self._transfer.buffers, groups, self._start, self._finish)

    def close(self) -> None:
        self._transfer.close()

    def _tensors(self) -> Iterator[_FileTensor]:
        for source, here in self._archive.tensors():
            span = None
            if self._archive.is_coded(source.spec.name):
                head = self._archive.head(source, here)
                span = self._archive.span(head, 0, head.model.chunks)
            yield _FileTensor(source, here, span)

    def _start(self, buffer: StagingBuffer, tensors: Sequence[_FileTensor]) -> _PendingTensors:
        requests, number_of = list[SpanRequest](), dict[str, int]()
        for tensor in tensors:
            span = tensor.span
            if span is None or span_obstacle(span):
                continue
            fits = self._palettes and not palette_obstacle(span.model, span.directory)
            number_of[tensor.source.spec.name] = len(requests)
            requests.append(SpanRequest(span, as_palette=fits))
        batch = self._transfer.start(buffer, requests, download=False)
        return _PendingTensors(tensors, batch, number_of)

    def _finish(self, pending: _PendingTensors) -> Iterator[DeviceTensor]:
        batch = self._transfer.finish(pending.batch)
        digests = self._digests_of_words(batch)
        for tensor in pending.tensors:
            spec = tensor.source.spec
            number = pending.number_of.get(spec.name)
            if number is None:
                loaded = DeviceTensor(spec, self._copied(tensor))
            elif number in batch.palettes:
                loaded = DeviceTensor(spec, palette=batch.palettes[number].palette(batch.out))
            else:
                loaded = DeviceTensor(spec, batch.out[batch.words_at(number)])
            digest = None if number is None else digests.get(number)
            self._check(loaded, self._digest(loaded) if digest is None else digest)
            yield loaded

    def _digests_of_words(self, batch: PendingBatch) -> dict[int, int]:
        """Return the digests of what came out as words, by number of the request.

        A digest is a chain that one warp follows, so those of a batch are taken side by side.
        """
        numbers = [n for n in range(len(batch.requests)) if n not in batch.palettes]
        slices = [batch.words_at(number) for number in numbers]
        ranges = np.array([(s.start, s.stop - s.start) for s in slices], np.uint64).reshape(-1, 2)
        digests = self._transfer.checksums.digests(batch.out, ranges)
        return dict(zip(numbers, digests.tolist(), strict=True))

    def _copied(self, tensor: _FileTensor) -> Array:
        """Return bytes that the processor has read."""
        if tensor.span is not None:
            return self._device.array(decode_on_host(tensor.span).words)
        return self._device.array(self._archive.read_stored(tensor.here, 0, tensor.here.nbytes))

    def _digest(self, loaded: DeviceTensor) -> int:
        """Return the digest of a tensor on the device; a palette is expanded for it."""
        words = loaded.words
        if loaded.palette is not None:
            words = self._codec.expand(loaded.palette).reshape(-1).view(np.uint8)
        ranges = np.array([[0, loaded.spec.nbytes]], np.uint64)
        return int(self._transfer.checksums.digests(words, ranges)[0])

    def _check(self, loaded: DeviceTensor, digest: int) -> None:
        """Raise IntegrityError unless a tensor has the digest that the manifest gives."""
        if f"{digest:016x}" != self._archive.manifest.digest_of(loaded.spec.name):
            raise IntegrityError(
                f"{self._archive.path}: tensor {quoted(loaded.spec.name)}: wrong digest",
                hint="the file is damaged: download or copy it again",
            )
