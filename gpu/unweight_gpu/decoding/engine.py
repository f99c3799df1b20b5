"""Decoding on a device: batches of chunks go there as they are, and come back as words.

A batch has chunks of many tensors, since a device needs thousands of them to be busy.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import Final, Self, TypeVar

from unweight_codecs.accelerators import CPU, CodedSpan, HostPiece, Piece, decode_on_host
from unweight_codecs.errors import ResourceError
from unweight_codecs.kernels.operands import Bytes
from unweight_gpu.checking.comparison import Verifier
from unweight_gpu.decoding.obstacles import span_obstacle
from unweight_gpu.decoding.overlap import batches, overlapped
from unweight_gpu.decoding.transfer import PendingBatch, SpanRequest, StagingBuffer, Transfer
from unweight_gpu.device.interface import Array, StreamingDevice

# Of words. Words come back to the host, which takes longer than decoding them: a device need not be
# quite full, and pinned memory is dear.
STREAMED_BYTES: Final = 1 << 26
SPAN_CHUNKS: Final = 128

Found = TypeVar("Found")


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
        engine = self._engine
        return engine.or_on_host(
            lambda: engine.verifier.first_difference(self._uploaded(original), self._on_device),
            lambda: HostPiece(self._words).first_difference(original),
        )

    def squared_error(self, original: Bytes, dtype: str) -> tuple[float, float, float]:
        """Sum up on the device."""
        engine = self._engine
        return engine.or_on_host(
            lambda: engine.verifier.squared_error(self._uploaded(original), self._on_device, dtype),
            lambda: HostPiece(self._words).squared_error(original, dtype),
        )

    def _uploaded(self, original: Bytes) -> Array:
        return self._engine.device.array(original)


@dataclass(frozen=True, slots=True)
class _PendingSpans:
    """Spans in order, and the batch of those that the device decodes.

    ``batch`` is None where the device has failed, and the processor decodes all.
    """

    spans: Sequence[CodedSpan]
    batch: PendingBatch | None


class CudaEngine:
    """An engine on a device of CUDA; see ``Engine``.

    With a ``note`` the processor takes over all the rest at the first failure of the device, and
    the note says why.
    """

    def __init__(
        self,
        device: StreamingDevice,
        name: str,
        note: Callable[[str], None] | None = None,
        batch_bytes: int = STREAMED_BYTES,
    ) -> None:
        self.device = device
        self._name, self._note, self._batch_bytes = name, note, batch_bytes
        self._has_failed = False
        self._transfer, self.verifier = Transfer(device), Verifier(device)

    @property
    def name(self) -> str:
        """Name the device, and the processor if it had to take over."""
        return f"{self._name}, then {CPU}" if self._has_failed else self._name

    @property
    def threads(self) -> int:
        """The thread that reads, and feeds the device."""
        return 1

    @property
    def span_chunks(self) -> int:
        """Many, since describing a span to the device takes a while."""
        return SPAN_CHUNKS

    def decode(self, tensors: Iterable[Sequence[CodedSpan]]) -> Iterator[Iterator[Piece]]:
        """Decode in batches that know no tensors, then deal out the pieces."""
        numbers = deque[int]()

        def spans() -> Iterator[CodedSpan]:
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

    def or_on_host(self, on_device: Callable[[], Found], on_host: Callable[[], Found]) -> Found:
        """Return what the device finds, and once it has failed, what the processor finds.

        Raises ResourceError at the first failure if the engine has no ``note``.
        """
        if not self._has_failed:
            try:
                return on_device()
            except ResourceError as error:
                if self._note is None:
                    raise
                self._has_failed = True
                self._note(f"decoding on the processor: {error.message}")
        return on_host()

    def _pieces(self, spans: Iterable[CodedSpan]) -> Iterator[Piece]:
        runs = batches(spans, lambda span: span.words_bytes, self._batch_bytes)
        return overlapped(self._transfer.buffers, runs, self._start, self._finish)

    def _start(self, buffer: StagingBuffer, spans: Sequence[CodedSpan]) -> _PendingSpans:
        requests = [SpanRequest(span) for span in spans if not span_obstacle(span)]
        return self.or_on_host(
            lambda: _PendingSpans(spans, self._transfer.start(buffer, requests, download=True)),
            lambda: _PendingSpans(spans, None),
        )

    def _finish(self, pending: _PendingSpans) -> Iterator[Piece]:
        """Wait for a batch and yield its pieces."""
        found = pending.batch
        if found is not None:
            found = self.or_on_host(partial(self._transfer.finish, found), lambda: None)
        number_of = {id(r.span): n for n, r in enumerate(found.requests)} if found else {}
        for span in pending.spans:
            number = number_of.get(id(span))
            if found is None or number is None:
                yield decode_on_host(span)
            else:
                place = found.words_at(number)
                yield DevicePiece(found.words[place], found.out[place], self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._transfer.close()
