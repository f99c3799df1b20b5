"""Devices with queues, as engines want them: the simulator's do everything at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tests.gpu.support.seeded import Seeded
from unweight_codecs.errors import ResourceError
from unweight_codecs.kernels.operands import Bytes
from unweight_gpu.device.interface import Array, Queue


class _Queue:
    """Work that is done as soon as it is given."""

    @contextmanager
    def current(self) -> Iterator[None]:
        """Do nothing: there is one order of work."""
        yield

    def wait(self) -> None:
        """Return: nothing is under way."""


@dataclass(frozen=True, slots=True)
class Streaming(Seeded):
    """A simulated device with queues; ``fails_at`` runs out of memory at uploads of that number."""

    fails_at: tuple[int, ...] = ()
    uploads: list[int] = field(default_factory=list)

    @property
    def description(self) -> str:
        """What it is, where a device gives its name."""
        return "the simulator"

    def queue(self) -> Queue:
        """Return a queue."""
        return _Queue()

    def pinned(self, nbytes: int) -> Bytes:
        """Return poisoned memory."""
        return np.full(nbytes, 0xCD, np.uint8)

    def upload(self, source: Bytes, target: Array) -> None:
        """Copy at once."""
        self.uploads.append(source.size)
        if len(self.uploads) in self.fails_at:
            raise ResourceError("the device has too little memory")
        target[...] = source

    def download(self, source: Array, target: Bytes) -> None:
        """Copy at once."""
        target[...] = source
