"""What times work on a device, and how often work is repeated so that no cache helps it."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

_COLD_BYTES: Final = 256 << 20  # between two uses of the same bytes: beyond any cache
_MOST_COPIES: Final = 16

Run = Callable[[], object]


class Timer(Protocol):
    """Measures work on a device."""

    def samples(self, runs: Sequence[Run]) -> Sequence[float]:
        """Return the seconds of a run, several times; the runs take turns."""
        ...


def copies_of(nbytes: int) -> int:
    """Return how many copies of so many bytes must take turns so that no cache holds one."""
    return max(1, min(_MOST_COPIES, -(-_COLD_BYTES // max(1, nbytes))))
