"""What Unweight means to reach. Printed with every run, never asserted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.results import Results


@dataclass(frozen=True, slots=True)
class Target:
    """A limit on one figure: an upper one, or a lower one if ``at_least``."""

    name: str
    limit: float
    unit: str
    measure: Callable[[Results], float]
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A target and what was measured. ``missed_by`` is zero or less when it is met."""

    target: Target
    value: float

    @property
    def missed_by(self) -> float:
        """By how much the figure is on the wrong side of the limit."""
        difference = self.value - self.target.limit
        return -difference if self.target.at_least else difference

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON-ready data."""
        target = self.target
        return {
            "name": target.name,
            "limit": target.limit,
            "at_least": target.at_least,
            "unit": target.unit,
            "value": self.value,
            "met": self.missed_by <= 0,
        }


def outcomes(results: Results) -> Iterator[Outcome]:
    """Yield every target with what was measured."""
    for target in TARGETS:
        yield Outcome(target, target.measure(results))


def _percent(dtype: str, preset: str) -> Callable[[Results], float]:
    return lambda results: results.model(f"MiniLM {dtype}", f"unweight {preset}").percent


def _encode_speedup(results: Results) -> float:
    own = results.model("MiniLM BF16", "unweight default, joined")
    return own.encode_speedup(results.model("MiniLM BF16", "zipnn"))


def _decode_speedup(results: Results) -> float:
    own = results.model("MiniLM BF16", "unweight default, joined")
    return own.decode_speedup(results.model("MiniLM BF16", "zipnn"))


def _peak_megabytes(results: Results) -> float:
    return max(each.peak_bytes for each in results.processes if each.tool == "unweight") / 1e6


def _version_seconds(results: Results) -> float:
    return next(each.wall_seconds for each in results.processes if each.action == "--version")


def _worst_growth(results: Results) -> float:
    return max(each.percent for each in results.controls)


TARGETS: Final = (
    Target("size of BF16, fast", 66.5, "%", _percent("BF16", "fast")),
    Target("size of BF16, default", 66.2, "%", _percent("BF16", "default")),
    Target("size of F16, default", 85.0, "%", _percent("F16", "default")),
    Target("size of F32, default", 83.0, "%", _percent("F32", "default")),
    Target("decoding BF16, default", 1.4, "times zipnn", _decode_speedup, at_least=True),
    Target("encoding BF16, default", 2.0, "times zipnn", _encode_speedup, at_least=True),
    Target("peak memory, 2 threads", 250, "MB", _peak_megabytes),
    Target("unweight --version", 0.3, "s", _version_seconds),
    Target("growth of what cannot shrink", 0.1, "%", _worst_growth),
)
