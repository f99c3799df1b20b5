"""What an accelerator must offer. They register in the group ``unweight.accelerators``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from unweight_codecs.accelerators.coded_span import CodedSpan
from unweight_codecs.kernels.operands import Bytes


class Piece(Protocol):
    """Some restored bytes, valid until the next piece is asked for."""

    @property
    def words(self) -> Bytes:
        """The bytes, in the memory of the host."""
        ...

    def first_difference(self, original: Bytes) -> int | None:
        """Return the position of the first byte that differs from as many others; None if none."""
        ...

    def squared_error(self, original: Bytes, dtype: str) -> tuple[float, float, float]:
        """Return sums of squares of the finite original and of the error, and the largest error.

        Raises IntegrityError for a word that is not finite and differs.
        """
        ...


class Engine(Protocol):
    """Decodes and compares on one device. Leaving its context frees what it holds."""

    @property
    def name(self) -> str:
        """Where it decodes, as ``--device`` spells it."""
        ...

    @property
    def threads(self) -> int:
        """Threads of the host that take part."""
        ...

    @property
    def span_chunks(self) -> int:
        """How many chunks a span should have."""
        ...

    def decode(self, tensors: Iterable[Sequence[CodedSpan]]) -> Iterator[Iterator[Piece]]:
        """Yield for each tensor the pieces that its spans decode to, in order.

        The pieces of a tensor must be taken before the next one is asked for. Raises IntegrityError
        for damaged chunks.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class Accelerator(Protocol):
    """A kind of device that can take over work from the processor."""

    def probe(self, number: int = 0) -> tuple[bool, str]:
        """Return whether a device can be used, and a line that describes it or says why not."""
        ...

    def open(self, number: int, threads: int, note: Callable[[str], None] | None) -> Engine:
        """Return an engine on the device of a number; raises ResourceError when it is not there.

        With ``note`` the engine goes on without the device if it fails, and says so; otherwise it
        raises.
        """
        ...
