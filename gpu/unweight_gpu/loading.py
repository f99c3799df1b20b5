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
from unweight_gpu.decoding.transfer import Request, Slot, Transfer, UnderWay
from unweight_gpu.device.interface import Array, StreamingDevice
from unweight_gpu.palette.codec import PaletteCodec
from unweight_gpu.palette.format import Layout, Palette
from unweight_gpu.palette.linear import LinearBackend, PaletteLinear

RESIDENT_BYTES: Final = 1 << 29  # of words: a layer of a model of 8 billion weights takes 0.4 GB


@dataclass(frozen=True, slots=True)
class Loaded:
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
class _Wanted:
    """A tensor of a file: a span of all its chunks, or None where it is stored."""

    source: TensorEntry
    here: TensorEntry
    span: CodedSpan | None

    @property
    def nbytes(self) -> int:
        return self.source.nbytes


@dataclass(frozen=True, slots=True)
class _Started:
    wanted: Sequence[_Wanted]
    under_way: UnderWay
    number_of: Mapping[str, int]  # of the requests, by the name of the tensor


def load(
    path: Path,
    device: StreamingDevice,
    *,
    palettes: bool = False,
    batch_bytes: int = RESIDENT_BYTES,
) -> Iterator[Loaded]:
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

    def loaded(self, batch_bytes: int) -> Iterator[Loaded]:
        runs = batches(self._wanted(), lambda wanted: wanted.nbytes, batch_bytes)
        return overlapped(self._transfer.slots, runs, self._start, self._finish)

    def close(self) -> None:
        self._transfer.close()

    def _wanted(self) -> Iterator[_Wanted]:
        for source, here in self._archive.tensors():
            span = None
            if self._archive.is_coded(source.spec.name):
                head = self._archive.head(source, here)
                span = self._archive.span(head, 0, head.model.chunks)
            yield _Wanted(source, here, span)

    def _start(self, slot: Slot, wanted: Sequence[_Wanted]) -> _Started:
        requests, number_of = list[Request](), dict[str, int]()
        for each in wanted:
            span = each.span
            if span is None or span_obstacle(span):
                continue
            fits = self._palettes and not palette_obstacle(span.model, span.directory)
            number_of[each.source.spec.name] = len(requests)
            requests.append(Request(span, as_palette=fits))
        return _Started(wanted, self._transfer.start(slot, requests, download=False), number_of)

    def _finish(self, started: _Started) -> Iterator[Loaded]:
        under_way = started.under_way
        self._transfer.finish(under_way)
        digests = self._digests_of_words(under_way)
        for wanted in started.wanted:
            spec = wanted.source.spec
            number = started.number_of.get(spec.name)
            if number is None:
                found = Loaded(spec, self._copied(wanted))
            elif number in under_way.palettes:
                palette = under_way.palettes[number].palette(under_way.out)
                found = Loaded(spec, palette=palette)
            else:
                found = Loaded(spec, under_way.out[under_way.place(number)])
            digest = None if number is None else digests.get(number)
            self._check(found, self._digest(found) if digest is None else digest)
            yield found

    def _digests_of_words(self, under_way: UnderWay) -> dict[int, int]:
        """Return the digests of what came out as words, by number of the request.

        A digest is a chain that one warp follows, so those of a batch are taken side by side.
        """
        numbers = [n for n in range(len(under_way.requests)) if n not in under_way.palettes]
        places = [under_way.place(number) for number in numbers]
        ranges = np.array([(p.start, p.stop - p.start) for p in places], np.uint64).reshape(-1, 2)
        found = self._transfer.checksums.digests(under_way.out, ranges)
        return dict(zip(numbers, found.tolist(), strict=True))

    def _copied(self, wanted: _Wanted) -> Array:
        """Return bytes that the processor has read."""
        if wanted.span is not None:
            return self._device.array(decode_on_host(wanted.span).words)
        return self._device.array(self._archive.read_stored(wanted.here, 0, wanted.here.nbytes))

    def _digest(self, loaded: Loaded) -> int:
        """Return the digest of a tensor on the device; a palette is expanded for it."""
        words = loaded.words
        if loaded.palette is not None:
            words = self._codec.expand(loaded.palette).reshape(-1).view(np.uint8)
        ranges = np.array([[0, loaded.spec.nbytes]], np.uint64)
        return int(self._transfer.checksums.digests(words, ranges)[0])

    def _check(self, loaded: Loaded, digest: int) -> None:
        """Raise IntegrityError unless a tensor has the digest that the manifest gives."""
        if f"{digest:016x}" != self._archive.manifest.digest_of(loaded.spec.name):
            raise IntegrityError(
                f"{self._archive.path}: tensor {quoted(loaded.spec.name)}: wrong digest",
                hint="the file is damaged: download or copy it again",
            )
