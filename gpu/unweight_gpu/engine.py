"""Decoding on a device: batches of chunks go there as they are, and come back as words.

While the device works on one batch, the next one is read from the file into pinned memory, and the
one before is taken by the caller. A batch has chunks of many tensors, since a device needs
thousands of them to be busy.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.accelerators import Piece, Span
from unweight_codecs.accelerators.cpu import decode_on_host
from unweight_codecs.entropy.directory import chunk_lengths
from unweight_codecs.errors import IntegrityError, ResourceError
from unweight_codecs.kernels.base import Bytes
from unweight_gpu.batch import Batch, BatchBuilder, obstacle
from unweight_gpu.checksums import Checksums
from unweight_gpu.decoder import Decoder, damage
from unweight_gpu.device import Array, StreamingDevice
from unweight_gpu.tensors import ALIGNMENT, Places
from unweight_gpu.verification import Verifier

BATCH_BYTES: Final = 1 << 28  # of words; a layer of a model of 8 billion weights takes 0.4 GB
SPAN_CHUNKS: Final = 128
_SLOTS: Final = 2  # batches under way


class DevicePiece:
    """Words that lie both in pinned memory and on the device; see ``Piece``."""

    def __init__(self, words: Bytes, on_device: Array, engine: "CudaEngine") -> None:
        self._words, self._on_device, self._engine = words, on_device, engine

    @property
    def words(self) -> Bytes:
        """The bytes, in pinned memory."""
        return self._words

    def first_difference(self, original: Bytes) -> int | None:
        """Compare on the device."""
        return self._engine.verifier.first_difference(self._uploaded(original), self._on_device)

    def squared_error(self, original: Bytes, dtype: str) -> tuple[float, float, float]:
        """Sum up on the device."""
        uploaded = self._uploaded(original)
        return self._engine.verifier.squared_error(uploaded, self._on_device, dtype)

    def _uploaded(self, original: Bytes) -> Array:
        return self._engine.device.array(original)


@dataclass(slots=True)
class _UnderWay:
    """A batch that was handed to the device."""

    spans: Sequence[Span]
    on_device: Sequence[int]  # which of the spans
    coded_at: Sequence[int]  # where those begin in ``coded``
    batch: Batch
    words: Bytes
    status: Bytes
    coded: Array
    out: Array


class _Slot:
    """A queue of the device and pinned memory that batches use one after the other."""

    def __init__(self, device: StreamingDevice) -> None:
        self._device = device
        self.queue = device.queue()
        self._pinned: dict[str, Bytes] = {}

    def pinned(self, use: str, nbytes: int) -> Bytes:
        """Return pinned memory for a use; what it held before is gone."""
        found = self._pinned.get(use)
        if found is None or found.size < nbytes:
            found = self._pinned[use] = self._device.pinned(-(-nbytes // ALIGNMENT) * ALIGNMENT)
        return found[:nbytes]

    def free(self) -> None:
        """Give back the pinned memory."""
        self._pinned.clear()


class CudaEngine:
    """An engine on a device of CUDA; see ``Engine``."""

    def __init__(
        self,
        device: StreamingDevice,
        name: str,
        note: Callable[[str], None] | None = None,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.device = device
        self._name, self._note, self._batch_bytes = name, note, batch_bytes
        self._decoder, self._checksums = Decoder(device), Checksums(device)
        self.verifier = Verifier(device)
        self._slots = [_Slot(device) for _ in range(_SLOTS)]

    @property
    def name(self) -> str:
        """Name the device."""
        return self._name

    @property
    def threads(self) -> int:
        """The thread that reads, and feeds the device."""
        return 1

    @property
    def span_chunks(self) -> int:
        """Many, since describing a span to the device takes a while."""
        return SPAN_CHUNKS

    def decode(self, tensors: Iterable[Sequence[Span]]) -> Iterator[Iterator[Piece]]:
        """Decode in batches that know no tensors, then deal out the pieces."""
        numbers = deque[int]()

        def spans() -> Iterator[Span]:
            for of_tensor in tensors:
                numbers.append(len(of_tensor))
                yield from of_tensor

        pieces = self._pieces(spans())
        for first in pieces:
            while not numbers[0]:
                numbers.popleft()
                yield iter(())
            yield chain((first,), islice(pieces, numbers.popleft() - 1))
        yield from (iter(()) for _ in numbers)

    def _pieces(self, spans: Iterable[Span]) -> Iterator[Piece]:
        under_way = deque[tuple[_Slot, _UnderWay | Sequence[Span]]]()
        for number, batch in enumerate(_batches(spans, self._batch_bytes)):
            slot = self._slots[number % _SLOTS]
            under_way.append((slot, self._start(slot, batch)))
            if len(under_way) == _SLOTS:
                yield from self._finish(*under_way.popleft())
        while under_way:
            yield from self._finish(*under_way.popleft())

    def _start(self, slot: _Slot, spans: Sequence[Span]) -> "_UnderWay | Sequence[Span]":
        """Hand a batch to the device; returns the spans themselves if it cannot take them."""
        try:
            return self._started(slot, spans)
        except ResourceError as error:
            return self._without_device(error, spans)

    def _without_device(self, error: ResourceError, spans: Sequence[Span]) -> Sequence[Span]:
        if self._note is None:
            raise error
        self._note(f"decoding on the processor: {error.message}")
        return spans

    def _started(self, slot: _Slot, spans: Sequence[Span]) -> _UnderWay:
        on_device = [i for i, span in enumerate(spans) if not obstacle(span.model, span.directory)]
        places, builder = Places(), BatchBuilder()
        coded_at = [places.add(spans[i].coded_bytes) for i in on_device]
        coded = slot.pinned("coded", max(1, places.end))
        for i, at in zip(on_device, coded_at, strict=True):
            span = spans[i]
            block = span.read(coded[at : at + span.coded_bytes])
            try:
                builder.add(block, span.model, at)
            except IntegrityError as error:
                raise span.failed(error) from None
        batch = builder.build()
        words = slot.pinned("words", batch.out_bytes)
        status = slot.pinned("status", 4 * len(batch.block_of_chunk))
        with slot.queue.current():
            uploaded = self.device.empty(coded.size, np.uint8)
            out = self.device.empty(max(1, batch.out_bytes), np.uint8)
            self.device.upload(coded, uploaded)
            found = self._decoder.launch(batch, uploaded, out)
            if on_device:
                self.device.download(out[: batch.out_bytes], words)
                self.device.download(found.view(np.uint8)[: status.size], status)
        return _UnderWay(spans, on_device, coded_at, batch, words, status, uploaded, out)

    def _finish(self, slot: _Slot, batch: "_UnderWay | Sequence[Span]") -> Iterator[Piece]:
        """Wait for a batch and yield its pieces."""
        if isinstance(batch, _UnderWay):
            try:
                slot.queue.wait()
                with slot.queue.current():
                    self._check(batch)
            except ResourceError as error:
                batch = self._without_device(error, batch.spans)
            else:
                yield from self._pieces_of(batch)
                return
        yield from map(decode_on_host, batch)

    def _check(self, batch: _UnderWay) -> None:
        """Raise IntegrityError for a chunk with a wrong checksum, or that kernels have refused."""
        spans = [batch.spans[i] for i in batch.on_device]
        if not spans:
            return
        ranges = [_ranges_of(span, at) for span, at in zip(spans, batch.coded_at, strict=True)]
        digests = self._checksums.digests(batch.coded, np.concatenate(ranges))
        ends = np.cumsum([len(span.directory) for span in spans])
        for span, found in zip(spans, np.split(digests, ends[:-1]), strict=True):
            if not np.array_equal(found, span.directory["checksum"]):
                raise span.failed(
                    IntegrityError("a chunk's checksum is wrong: the file is damaged")
                )
        wrong = damage(batch.batch, batch.status.view(np.uint32))
        if wrong is not None:
            raise spans[wrong[0]].failed(wrong[1])

    def _pieces_of(self, batch: _UnderWay) -> Iterator[Piece]:
        places = dict(zip(batch.on_device, batch.batch.out_at, strict=True))
        for i, span in enumerate(batch.spans):
            at = places.get(i)
            if at is None:
                yield decode_on_host(span)
                continue
            end = at + span.words_bytes
            yield DevicePiece(batch.words[at:end], batch.out[at:end], self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for slot in self._slots:
            slot.free()


def _batches(spans: Iterable[Span], most: int) -> Iterator[list[Span]]:
    """Yield runs of spans of about ``most`` bytes of words, none of them empty."""
    batch, size = list[Span](), 0
    for span in spans:
        if batch and size + span.words_bytes > most:
            yield batch
            batch, size = [], 0
        batch.append(span)
        size += span.words_bytes
    if batch:
        yield batch


def _ranges_of(span: Span, at: int) -> NDArray[np.uint64]:
    """Return offset and length of every chunk of a span that begins at ``at``."""
    lengths = chunk_lengths(span.directory)
    return np.stack([at + np.cumsum(lengths) - lengths, lengths], axis=1).astype(np.uint64)
