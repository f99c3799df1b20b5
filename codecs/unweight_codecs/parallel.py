"""Work on spans in threads, results in order, with few spans in memory at once."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self, TypeVar

from unweight_codecs.errors import UsageError, quoted

MAX_THREADS = 256
_DEFAULT_LIMIT = 16

T = TypeVar("T")
R = TypeVar("R")


class OrderedMap(Protocol):
    """Like ``map``, but perhaps in several threads."""

    def __call__(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
        """Yield ``work(item)`` in the order of the items."""
        ...


def thread_count(requested: int) -> int:
    """Return the threads to use: ``requested``, or what the process may use when it is 0."""
    if type(requested) is not int or not 0 <= requested <= MAX_THREADS:
        wrong = quoted(requested)
        raise UsageError(f"must be 0 to {MAX_THREADS}, not {wrong}", parameter="threads")
    if requested:
        return requested
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(available or 1, _DEFAULT_LIMIT)


class Workers:
    """A pool of threads. Leaving the context drops what has not started yet."""

    def __init__(self, threads: int) -> None:
        self.threads = thread_count(threads)
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="unweight")

    def ordered(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Yield ``work(item)`` in the order of the items; at most threads + 1 are under way."""
        if self.threads == 1 or len(items) == 1:  # a hand-over takes longer than a small span
            yield from map(work, items)
            return
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(self._pool.submit(work, item))
                if len(pending) > self.threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
