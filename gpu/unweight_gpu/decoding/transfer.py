"""Batches of spans on their way: from a file to the device, and decoded there.

There are two staging buffers, each with a queue of its own: while the device works on the batch of
one, the next batch is read from the file into the pinned memory of the other.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.accelerators import CodedSpan
from unweight_codecs.errors import IntegrityError, ResourceError
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.payload.directory import chunk_lengths
from unweight_gpu.checking.checksums import Checksums
from unweight_gpu.decoding.batch import Batch, BatchBuilder
from unweight_gpu.decoding.decoder import Decoder, damage
from unweight_gpu.device.buffers import BUFFER_ALIGNMENT, BufferPlan
from unweight_gpu.device.interface import Array, StreamingDevice
from unweight_gpu.palette.format import PaletteOffsets

_STAGING_BUFFERS: Final = 2


@dataclass(frozen=True, slots=True)
class SpanRequest:
    """A span that the device is to decode; ``as_palette`` only for all of a tensor."""

    span: CodedSpan
    as_palette: bool = False


class StagingBuffer:
    """Pinned memory that batches use one after the other, and the queue that copies it."""

    def __init__(self, device: StreamingDevice) -> None:
        self._device = device
        self.queue = device.queue()
        self._pinned: dict[str, Bytes] = {}

    def pinned(self, use: str, nbytes: int) -> Bytes:
        """Return pinned memory for a use; what it held before is gone."""
        found = self._pinned.get(use)
        if found is None or found.size < nbytes:
            size = -(-nbytes // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT
            found = self._pinned[use] = self._device.pinned(size)
        return found[:nbytes]

    def free(self) -> None:
        """Give back the pinned memory, once no copy needs it any more."""
        with contextlib.suppress(ResourceError):
            self.queue.wait()
        self._pinned.clear()


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch that was handed to the device, and may not be done.

    Attributes:
        buffer: The staging buffer that it uses.
        requests: Its spans.
        coded_at: Where each of them begins in ``coded``.
        batch: What the kernels were told.
        palettes: Where the palettes come out, by number of the request.
        status: The status of every chunk, in pinned memory, once the queue is done.
        words: All results in pinned memory, once the queue is done; empty if not asked for.
        coded: The coded bytes, on the device.
        out: All results, on the device.
    """

    buffer: StagingBuffer
    requests: Sequence[SpanRequest]
    coded_at: Sequence[int]
    batch: Batch
    palettes: dict[int, PaletteOffsets]
    status: Bytes
    words: Bytes
    coded: Array
    out: Array

    def words_at(self, number: int) -> slice:
        """Return where the words of a request are among the results."""
        at = self.batch.out_at[number]
        return slice(at, at + self.requests[number].span.words_bytes)


class Transfer:
    """Moves batches to a device and has them decoded there."""

    def __init__(self, device: StreamingDevice) -> None:
        self._device = device
        self._decoder, self.checksums = Decoder(device), Checksums(device)
        self.buffers = [StagingBuffer(device) for _ in range(_STAGING_BUFFERS)]

    def start(
        self, buffer: StagingBuffer, requests: Sequence[SpanRequest], *, download: bool
    ) -> PendingBatch:
        """Read spans and start decoding them; with ``download`` the words come back as well.

        Raises ResourceError where the device fails, IntegrityError for a directory that is wrong.
        """
        try:
            return self._start(buffer, requests, download=download)
        except ResourceError:
            with contextlib.suppress(ResourceError):
                buffer.queue.wait()  # no copy may be left that needs the pinned memory
            raise

    def _start(
        self, buffer: StagingBuffer, requests: Sequence[SpanRequest], *, download: bool
    ) -> PendingBatch:
        plan, builder = BufferPlan(), BatchBuilder()
        coded_at = [plan.add(request.span.coded_bytes) for request in requests]
        coded = buffer.pinned("coded", max(1, plan.nbytes))
        palettes = dict[int, PaletteOffsets]()
        for number, (request, at) in enumerate(zip(requests, coded_at, strict=True)):
            span = request.span
            read = span.read(coded[at : at + span.coded_bytes])
            try:
                if request.as_palette:
                    palettes[number] = builder.add_as_palette(read, span.model, at)
                else:
                    builder.add(read, span.model, at)
            except IntegrityError as error:
                raise span.failed(error) from None
        batch = builder.build()
        words = buffer.pinned("words", batch.out_bytes if download else 0)
        status = buffer.pinned("status", 4 * len(batch.span_of_chunk))
        with buffer.queue.current():
            uploaded = self._device.empty(coded.size, np.uint8)
            out = self._device.empty(max(1, batch.out_bytes), np.uint8)
            self._device.upload(coded, uploaded)
            found = self._decoder.launch(batch, uploaded, out)
            if words.size:
                self._device.download(out[: words.size], words)
            if status.size:
                self._device.download(found.view(np.uint8)[: status.size], status)
        return PendingBatch(
            buffer, requests, coded_at, batch, palettes, status, words, uploaded, out
        )

    def finish(self, pending: PendingBatch) -> PendingBatch:
        """Wait for a batch, check it, and return it; what it has decoded to may then be used.

        Raises IntegrityError for a chunk with a wrong checksum, or that kernels have refused.
        """
        pending.buffer.queue.wait()
        spans = [request.span for request in pending.requests]
        if not spans:
            return pending
        ranges = map(_ranges_of, spans, pending.coded_at)
        with pending.buffer.queue.current():
            digests = self.checksums.digests(pending.coded, np.concatenate(list(ranges)))
        ends = np.cumsum([len(span.directory) for span in spans])
        for span, found in zip(spans, np.split(digests, ends[:-1]), strict=True):
            if not np.array_equal(found, span.directory["checksum"]):
                raise span.failed(
                    IntegrityError("a chunk's checksum is wrong: the file is damaged")
                )
        wrong = damage(pending.batch, pending.status.view(np.uint32))
        if wrong is not None:
            raise spans[wrong[0]].failed(wrong[1])
        return pending

    def close(self) -> None:
        """Give back pinned memory."""
        for buffer in self.buffers:
            buffer.free()


def _ranges_of(span: CodedSpan, at: int) -> NDArray[np.uint64]:
    """Return offset and length of every chunk of a span that begins at ``at``."""
    lengths = chunk_lengths(span.directory)
    return np.stack([at + np.cumsum(lengths) - lengths, lengths], axis=1).astype(np.uint64)
