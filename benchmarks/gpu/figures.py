"""What was measured on a device, beside what, and whether it is what the project means to reach."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from benchmarks.cpu.measure import Spread, spread
from benchmarks.report.markdown import blank_repeats, rate, table

HEADER: Final = ("name", "size", "value", "unit", "peer", "ratio", "target", "met?")


@dataclass(frozen=True, slots=True)
class Target:
    """The least that a figure, or its ratio to a peer, should be on an H200."""

    least: float
    of: Literal["value", "ratio"]


DECODING: Final = Target(1.0, "value")  # TB/s of BF16 words
EXPANDING: Final = Target(2.0, "value")  # TB/s of BF16 words
FUSED: Final = Target(1.25, "ratio")  # to a product of plain BF16 words
LOADING: Final = Target(1.0, "ratio")  # to the copy of the uncompressed file


@dataclass(frozen=True, slots=True)
class Figure:
    """A rate or a time with its spread.

    Attributes:
        name: What was measured.
        size: On how much, and how.
        value: Median, least and greatest, in ``unit``.
        unit: ``TB/s``, ``GB/s`` (more is better) or ``us`` (less is better).
        peer: What it is compared with, if with anything.
        peer_value: The same of the peer.
        target: What it should be.
    """

    name: str
    size: str
    value: Spread
    unit: Literal["TB/s", "GB/s", "us"]
    peer: str = ""
    peer_value: Spread | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the peer, by the medians."""
        if self.peer_value is None:
            return None
        own, other = self.value.median, self.peer_value.median
        return other / own if self.unit == "us" else own / other

    @property
    def met(self) -> bool | None:
        """Whether it is what it should be; None where that is not known."""
        if self.target is None:
            return None
        found = self.value.median if self.target.of == "value" else self.ratio
        return None if found is None else found >= self.target.least

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as JSON-ready data."""
        return asdict(self) | {
            "value": self.value._asdict(),
            "peer_value": self.peer_value._asdict() if self.peer_value else None,
            "ratio": self.ratio,
            "met": self.met,
        }


def terabytes(nbytes: int, seconds: Iterable[float]) -> Spread:
    """Return the rate at which so many bytes were moved in each of the times, in TB/s."""
    return spread([nbytes / each / 1e12 for each in seconds])


def gigabytes(nbytes: int, seconds: Iterable[float]) -> Spread:
    """Return the same in GB/s."""
    return spread([nbytes / each / 1e9 for each in seconds])


def microseconds(seconds: Iterable[float]) -> Spread:
    """Return times in microseconds."""
    return spread([each * 1e6 for each in seconds])


def report(figures: Sequence[Figure]) -> str:
    """Return the one table."""
    names = blank_repeats(figure.name for figure in figures)
    rows = [(name, *_cells(figure)) for name, figure in zip(names, figures, strict=True)]
    return table(HEADER, rows, numbers=(2, 5, 6))


def _cells(figure: Figure) -> tuple[str, ...]:
    peer, ratio, target = figure.peer, figure.ratio, figure.target
    if figure.peer_value is not None:
        peer = f"{peer}: {rate(figure.peer_value, 1, 2)}"
    goal = ""
    if target is not None:
        goal = f"{target.least:g} {'x' if target.of == 'ratio' else figure.unit}"
    return (
        figure.size,
        rate(figure.value, 1, 2),
        figure.unit,
        peer,
        "" if ratio is None else f"{ratio:.2f}",
        goal,
        {None: "", True: "yes", False: "no"}[figure.met],
    )
