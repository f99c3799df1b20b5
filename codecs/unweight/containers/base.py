"""What every container reader returns, and the byte source it reads from."""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from unweight_codecs.errors import FormatError, ResourceError, UsageError
from unweight_codecs.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor and where its bytes lie: ``offset`` counts from the start of the file."""

    spec: TensorSpec
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ContainerIndex:
    """Everything a container says before its tensor data.

    Attributes:
        container: Name of the format, e.g. ``"safetensors"``.
        header: Every byte of the file before the first tensor byte, exactly as stored.
        metadata: The file's string metadata; None when it has no metadata at all.
        tensors: Tensors in file order, without overlap; only padding lies between them.
        size: Size of the whole file in bytes.
    """

    container: str
    header: bytes
    metadata: dict[str, str] | None
    tensors: tuple[TensorEntry, ...]
    size: int

    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Return (offset, length) of the bytes between header, each tensor and the end.

        There is one more than there are tensors; most lengths are 0.
        """
        ends = [len(self.header), *(t.offset + t.nbytes for t in self.tensors)]
        starts = [*(t.offset for t in self.tensors), self.size]
        return tuple((end, start - end) for end, start in zip(ends, starts, strict=True))


class FileSource:
    """Positioned reads from a regular file, usable from several threads at once.

    Reads go through ``pread`` and not a memory map: a map would count towards the process's
    memory, and a file cut short while it is read would kill the process instead of raising.

    Closing lets reads that are under way in other threads end first: the number of a closed file is
    given to the next one that is opened, and they would read that. Later reads raise UsageError.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises ResourceError if that fails, FormatError if no regular file."""
        self.path = path
        try:
            # O_NONBLOCK: opening a FIFO must not wait for a writer before it can be refused.
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            raise ResourceError(f"{path}: cannot be read: {error.strerror}") from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise FormatError(f"{path}: not a regular file")
        self.size = status.st_size
        self._state = threading.Lock()
        self._readers = 0
        self._closed = False

    def read_at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``; raises FormatError when the file ends before."""
        buffer = bytearray(length)
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` from ``offset``; raises FormatError when the file ends before."""
        done = 0
        with self._reading():
            while done < len(target):
                try:
                    got = os.preadv(self._fd, [target[done:]], offset + done)
                except OSError as error:
                    raise ResourceError(f"{self.path}: read failed: {error.strerror}") from error
                if got == 0:
                    raise FormatError(f"{self.path}: the file ends at byte {offset + done}")
                done += got

    def close(self) -> None:
        """Close the file, or let the last read that is under way do it; twice is once."""
        with self._state:
            last = not self._closed and self._readers == 0
            self._closed = True
        if last:
            os.close(self._fd)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Keep the file open for a read."""
        with self._state:
            if self._closed:
                raise UsageError(f"{self.path}: is closed")
            self._readers += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._state:
            self._readers -= 1
            last = self._closed and self._readers == 0
        if last:
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
