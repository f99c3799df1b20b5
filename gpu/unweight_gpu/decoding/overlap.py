"""Work in batches, the next of which is started before the results of the one before are taken."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Slot = TypeVar("Slot")
Started = TypeVar("Started")
Result = TypeVar("Result")


def overlapped(
    slots: Sequence[Slot],
    items: Iterable[Item],
    start: Callable[[Slot, Item], Started],
    finish: Callable[[Started], Iterator[Result]],
) -> Iterator[Result]:
    """Yield the results of items in order, with one item per slot started before it is needed."""
    under_way = deque[Started]()
    for number, item in enumerate(items):
        under_way.append(start(slots[number % len(slots)], item))
        if len(under_way) == len(slots):
            yield from finish(under_way.popleft())
    while under_way:
        yield from finish(under_way.popleft())


def batches(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Yield runs of items of about ``most`` bytes; none is empty, one item may be larger."""
    batch, total = list[Item](), 0
    for item in items:
        if batch and total + size(item) > most:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
