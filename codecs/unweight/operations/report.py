"""Results of the operations, as plain data. ``to_dict`` gives what ``--json`` prints."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from unweight_codecs.accelerators import CPU


class CheckKind(StrEnum):
    """What an operation has compared, of every tensor, before it reports success."""

    WRITTEN = "written"
    """What was written, decoded again, with the original: bit by bit, or with its error bound."""
    DIGESTS = "digests"
    """What was decoded with all checksums and digests in the file."""
    ORIGINAL = "original"
    """What was decoded with another file or directory, carried files included."""


@dataclass(frozen=True, slots=True)
class TensorReport:
    """One tensor: size before and after, and the pipeline that coded it ("stored" = unchanged).

    ``epsilon`` is the relative error that was allowed, 0 for an exact tensor, ``error`` the one it
    has, both in the Frobenius norm; ``max_error`` is the largest absolute error of a weight.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pipeline: str
    source_bytes: int
    coded_bytes: int
    epsilon: float = 0.0
    error: float = 0.0
    max_error: float = 0.0


@dataclass(frozen=True, slots=True)
class FileReport:
    """One container file.

    ``source_sha256`` is the digest of the original, ``restored_sha256`` that of the file that
    decompressing gives: the same one unless the file is error-bounded.
    """

    source: str
    target: str
    container: str
    source_bytes: int
    target_bytes: int
    source_sha256: str
    restored_sha256: str
    tensors: tuple[TensorReport, ...]


@dataclass(frozen=True, slots=True)
class OperationReport:
    """What ``compress``, ``decompress`` or ``verify`` did.

    ``source_bytes``/``target_bytes`` are totals over container files and carried files. For
    ``verify`` the target is the original that was compared against, or "" without one. ``checked``
    says what was compared. ``exact`` tells whether every tensor comes back bit for bit; otherwise
    ``bounded_tensors`` do so within an error bound, ``max_epsilon`` is the largest of their bounds
    and ``worst_error`` the largest relative error that one of them has. ``device`` is where it was
    decoded, ``kernel`` what the processor uses. ``notes`` are what a user should know although all
    is well.
    """

    operation: str
    source: str
    target: str
    files: tuple[FileReport, ...]
    carried_files: int
    carried_bytes: int
    source_bytes: int
    target_bytes: int
    seconds: float
    cpu_seconds: float
    threads: int
    kernel: str
    checked: CheckKind
    exact: bool
    bounded_tensors: int
    max_epsilon: float
    worst_error: float
    device: str = CPU
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HeaderReport:
    """What ``inspect header`` shows. For a file Unweight did not write, ``format_version`` is 0.

    ``source_sha256`` and ``restored_sha256`` are as in ``FileReport``.
    """

    path: str
    container: str
    file_bytes: int
    header_bytes: int
    format_version: int
    format_minor: int
    generator: str
    mode: str
    epsilon: float
    source_bytes: int
    source_sha256: str
    restored_sha256: str
    source_header_bytes: int
    pipelines: tuple[dict[str, Any], ...]
    metadata: dict[str, str]
    tensors: tuple[TensorReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StreamReport:
    """One coded stream of a tensor.

    ``entropy_bits`` is the order-0 bound (bits per value) of the stream, each context or table by
    itself; for streams other than the main one it is not computed and equals ``coded_bits``. The
    main stream is the symbols of floats, the widest field of blocks, or the lowest byte plane.
    ``coded_bits`` what the stream really takes in the file (bits per value); ``coders`` counts
    chunks by coder, e.g. ``{"rans": 12, "raw": 1}``.
    """

    name: str
    bits: int
    values: int
    entropy_bits: float
    coded_bits: float
    coded_bytes: int
    coders: dict[str, int]


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one stage did to a tensor: ``facts`` maps a short label to a printable value."""

    name: str
    configuration: dict[str, Any]
    facts: dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class StagesReport:
    """What ``inspect stages --tensor NAME`` shows.

    ``histogram`` holds (label, count) pairs of the main stream, in the order of its values: one
    bar each.
    """

    path: str
    tensor: TensorReport
    bits_per_element_source: float
    bits_per_element_bound: float
    bits_per_element_coded: float
    overhead_bytes: int
    stages: tuple[StageReport, ...]
    streams: tuple[StreamReport, ...]
    histogram: tuple[tuple[str, int], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)
