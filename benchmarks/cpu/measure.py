"""CPU time of one thread, in rounds: every coder once, then every coder again."""

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from benchmarks.data.dataset import DataSet


class Stopwatch:
    """Measures the CPU seconds that this process spends inside a ``with`` block."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._start = time.process_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.process_time() - self._start


@dataclass(frozen=True, slots=True)
class Run:
    """One data set through one coder and back: bytes made of it, and CPU seconds.

    ``check_seconds`` is what decoding everything once more and comparing it takes; None for a
    coder that does not check what it encodes. ``error`` is the relative error of the matrices.
    """

    coded_bytes: int
    encode_seconds: float
    decode_seconds: float
    check_seconds: float | None = None
    error: float = 0.0


class Coder(Protocol):
    """Something that encodes and decodes the tensors of a data set."""

    @property
    def name(self) -> str:
        """What the tables call it."""
        ...

    def run(self, data: DataSet) -> Run:
        """Encode and decode ``data`` once; raises IntegrityError if more differs than may."""
        ...

    def file_bytes(self, data: DataSet) -> int | None:
        """Return the size of the file written for ``data``; None for a coder without files."""
        ...


class Spread(NamedTuple):
    """Median, least and greatest of repeated measurements."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One coder on one data set. ``file_bytes`` is None for a coder without files."""

    data: str
    dtype: str
    coder: str
    source_bytes: int
    source_file_bytes: int
    file_bytes: int | None
    runs: tuple[Run, ...]

    @property
    def percent(self) -> float:
        """Size in percent of the original: of whole files where the coder writes them."""
        if self.file_bytes is not None:
            return 100 * self.file_bytes / self.source_file_bytes
        return 100 * self.runs[0].coded_bytes / self.source_bytes

    @property
    def error(self) -> float:
        """Relative error of the matrices, in the Frobenius norm; 0 for an exact coder."""
        return self.runs[0].error

    @property
    def encode_rate(self) -> Spread:
        """Original bytes per CPU-second of encoding."""
        return self._rate(run.encode_seconds for run in self.runs)

    @property
    def decode_rate(self) -> Spread:
        """Original bytes per CPU-second of decoding."""
        return self._rate(run.decode_seconds for run in self.runs)

    @property
    def check_rate(self) -> Spread | None:
        """Original bytes per CPU-second of checking; None where nothing is checked."""
        seconds = [run.check_seconds for run in self.runs if run.check_seconds is not None]
        return self._rate(seconds) if seconds else None

    def encode_speedup(self, peer: "Measurement") -> float:
        """Return how many times faster than ``peer`` this encodes: median over the rounds."""
        pairs = zip(self.runs, peer.runs, strict=True)
        return statistics.median(b.encode_seconds / a.encode_seconds for a, b in pairs)

    def decode_speedup(self, peer: "Measurement") -> float:
        """Return how many times faster than ``peer`` this decodes: median over the rounds."""
        pairs = zip(self.runs, peer.runs, strict=True)
        return statistics.median(b.decode_seconds / a.decode_seconds for a, b in pairs)

    def _rate(self, seconds: Iterable[float]) -> Spread:
        return spread([self.source_bytes / each for each in seconds])

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement as JSON-ready data, with every single run."""
        return asdict(self) | {"percent": self.percent}


@dataclass(frozen=True, slots=True)
class Growth:
    """What ``compress`` makes of a file that cannot shrink."""

    data: str
    coder: str
    source_bytes: int
    file_bytes: int

    @property
    def percent(self) -> float:
        """Growth in percent of the original file."""
        return 100 * (self.file_bytes / self.source_bytes - 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the growth as JSON-ready data."""
        return asdict(self) | {"percent": self.percent}


def spread(values: Sequence[float]) -> Spread:
    """Return median, least and greatest of ``values``, which must not be empty."""
    return Spread(statistics.median(values), min(values), max(values))


def measure(
    data: DataSet, coders: Sequence[Coder], rounds: int, *, warm_up: bool = True
) -> list[Measurement]:
    """Measure every coder on ``data``.

    The coders take turns, so that whatever else the machine does meets all of them, and a ratio
    can be taken within each round. A round before the first, in which libraries load and caches
    fill, is not counted; coders that take a minute need no ``warm_up``.
    """
    if warm_up:
        for coder in coders:
            coder.run(data)
    runs: list[list[Run]] = [[] for _ in coders]
    for _ in range(rounds):
        for coder, own in zip(coders, runs, strict=True):
            own.append(coder.run(data))
    source_file_bytes = data.path.stat().st_size
    return [
        Measurement(
            data=data.name,
            dtype=data.dtype,
            coder=coder.name,
            source_bytes=data.tensor_bytes,
            source_file_bytes=source_file_bytes,
            file_bytes=coder.file_bytes(data),
            runs=tuple(own),
        )
        for coder, own in zip(coders, runs, strict=True)
    ]
