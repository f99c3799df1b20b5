"""What measures work on a device, and what plain matrices are multiplied with."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from unweight_gpu.device import Array

_COLD_BYTES: Final = 256 << 20  # between two uses of the same bytes: beyond any cache
_MOST_COPIES: Final = 16

Run = Callable[[], object]


class Timer(Protocol):
    """Measures work on a device."""

    def samples(self, runs: Sequence[Run]) -> Sequence[float]:
        """Return the seconds of a run, several times; the runs take turns."""
        ...


class Peer(Protocol):
    """What multiplies plain BF16 words."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    def product(self, words: Array, x: Array, out: Array) -> Run:
        """Return what writes x Wᵀ to ``out``, all u16 words: [batch, cols], [rows, cols]."""
        ...


def copies_of(nbytes: int) -> int:
    """Return how many copies of so many bytes must take turns so that no cache holds one."""
    return max(1, min(_MOST_COPIES, -(-_COLD_BYTES // max(1, nbytes))))
