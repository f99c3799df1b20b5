"""Work in batches, the next of which is started before the results of the one before are taken."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Buffer = TypeVar("Buffer")
Pending = TypeVar("Pending")
Result = TypeVar("Result")


def overlapped(
    buffers: Sequence[Buffer],
    items: Iterable[Item],
    start: Callable[[Buffer, Item], Pending],
    finish: Callable[[Pending], Iterator[Result]],
) -> Iterator[Result]:
    """Yield the results of items in order; the next item is started before they are taken."""
    pending = deque[Pending]()
    for number, item in enumerate(items):
        pending.append(start(buffers[number % len(buffers)], item))
        if len(pending) == len(buffers):
            yield from finish(pending.popleft())
    while pending:
        yield from finish(pending.popleft())


def batches(
    items: Iterable[Item], size: Callable[[Item], int], max_bytes: int
) -> Iterator[list[Item]]:
    """Yield runs of items of at most ``max_bytes``; none is empty, and one item may be larger."""
    batch, total = list[Item](), 0
    for item in items:
        if batch and total + size(item) > max_bytes:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
