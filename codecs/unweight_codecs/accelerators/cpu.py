"""The processor: spans are decoded by the kernels, in threads."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import numpy as np

from unweight_codecs.accelerators.base import Piece
from unweight_codecs.accelerators.coded_span import SPAN_CHUNKS, CodedSpan
from unweight_codecs.bounded.levels import squared_error
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.parallel import Workers

CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class HostPiece:
    """Restored bytes in the memory of the host; see ``Piece``."""

    words: Bytes

    def first_difference(self, original: Bytes) -> int | None:
        """Compare byte by byte."""
        if np.array_equal(original, self.words):
            return None
        return int(np.argmax(original != self.words))

    def squared_error(self, original: Bytes, dtype: str) -> tuple[float, float, float]:
        """Sum up with the kernels of the processor."""
        return squared_error(original, self.words, dtype)


def decode_on_host(span: CodedSpan) -> HostPiece:
    """Read and decode a span."""
    block = span.read(buffers.empty(span.coded_bytes))
    span.decode(block)
    return HostPiece(block.words)


class CpuEngine:
    """The kernels of the processor; see ``Engine``. ``threads`` 0 means as many as there may be."""

    def __init__(self, threads: int) -> None:
        self._workers = Workers(threads)

    @property
    def name(self) -> str:
        """The processor."""
        return CPU

    @property
    def threads(self) -> int:
        """Threads that decode."""
        return self._workers.threads

    @property
    def span_chunks(self) -> int:
        """Enough to decode chunks in pairs, and few enough to stay in the processor's caches."""
        return SPAN_CHUNKS

    def decode(self, tensors: Iterable[Sequence[CodedSpan]]) -> Iterator[Iterator[Piece]]:
        """Decode the spans of a tensor side by side."""
        for spans in tensors:
            yield self._workers.ordered(decode_on_host, spans)

    def __enter__(self) -> Self:
        self._workers.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._workers.__exit__(kind, error, trace)
