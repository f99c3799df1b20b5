"""What Unweight means to reach. Printed with every run, never asserted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.cpu.measure import Measurement
from benchmarks.data.gguf_models import FLOATS, gguf_name, twin_name
from benchmarks.report.results import Results, Section


@dataclass(frozen=True, slots=True)
class Target:
    """A limit on one figure: an upper one, or a lower one if ``at_least``."""

    name: str
    limit: float
    unit: str
    measure: Callable[[Section], float]
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
    """Yield every target of the sections that were measured, with the figure."""
    for name, section in results.sections.items():
        for target in TARGETS[name]:
            yield Outcome(target, target.measure(section))


def _percent(data: str, preset: str) -> Callable[[Section], float]:
    return lambda section: section.model(data, f"unweight {preset}").percent


def _encode_speedup(section: Section) -> float:
    own = section.model("MiniLM BF16", "unweight default, joined")
    return own.encode_speedup(section.model("MiniLM BF16", "zipnn"))


def _decode_speedup(section: Section) -> float:
    own = section.model("MiniLM BF16", "unweight default, joined")
    return own.decode_speedup(section.model("MiniLM BF16", "zipnn"))


def _encode_megabytes(section: Section) -> float:
    return section.model(gguf_name("Q4_1"), "unweight default").encode_rate.median / 1e6


def _decode_megabytes(section: Section) -> float:
    return section.model(gguf_name("Q4_1"), "unweight default").decode_rate.median / 1e6


def _at_error_of(section: Section, peer: str) -> Measurement:
    return section.model("MiniLM BF16", f"unweight default, error of {peer}")


def _bits_at(peer: str) -> Callable[[Section], float]:
    """Return what tells the bits per weight of a model of 16-bit words, in a file."""
    return lambda section: 16 * _at_error_of(section, peer).percent / 100


def _bounded_encode_megabytes(section: Section) -> float:
    return _at_error_of(section, "Q8_0").encode_rate.median / 1e6


def _bounded_decode_megabytes(section: Section) -> float:
    return _at_error_of(section, "Q8_0").decode_rate.median / 1e6


def _over_twin(dtype: str) -> Callable[[Section], float]:
    """Return what tells by how many points a GGUF file is above its safetensors twin."""
    own, twin = _percent(gguf_name(dtype), "default"), _percent(twin_name(dtype), "default")
    return lambda section: own(section) - twin(section)


def _peak_megabytes(section: Section) -> float:
    return section.peak_bytes / 1e6


def _version_seconds(section: Section) -> float:
    return next(each.wall_seconds for each in section.processes if each.action == "--version")


def _worst_growth(section: Section) -> float:
    return max(each.percent for each in section.controls)


_SAFETENSORS: Final = (
    Target("size of BF16, fast", 66.5, "%", _percent("MiniLM BF16", "fast")),
    Target("size of BF16, default", 66.2, "%", _percent("MiniLM BF16", "default")),
    Target("size of F16, default", 85.0, "%", _percent("MiniLM F16", "default")),
    Target("size of F32, default", 83.0, "%", _percent("MiniLM F32", "default")),
    Target("decoding BF16, default", 1.4, "times zipnn", _decode_speedup, at_least=True),
    Target("encoding BF16, default", 2.0, "times zipnn", _encode_speedup, at_least=True),
    Target("peak memory, 2 threads", 250, "MB", _peak_megabytes),
    Target("unweight --version", 0.3, "s", _version_seconds),
    Target("growth of what cannot shrink", 0.1, "%", _worst_growth),
)
_GGUF: Final = (
    Target("size of GGUF Q4_1, default", 87.5, "%", _percent(gguf_name("Q4_1"), "default")),
    Target("size of GGUF Q4_1, max", 87.0, "%", _percent(gguf_name("Q4_1"), "max")),
    Target("size of GGUF Q8_0, default", 93.5, "%", _percent(gguf_name("Q8_0"), "default")),
    *(Target(f"GGUF {each} above safetensors", 0.2, "points", _over_twin(each)) for each in FLOATS),
    Target("encoding GGUF Q4_1, default", 150, "MB/s", _encode_megabytes, at_least=True),
    Target("decoding GGUF Q4_1, default", 300, "MB/s", _decode_megabytes, at_least=True),
    Target("peak memory of GGUF, 1 thread", 250, "MB", _peak_megabytes),
)
_BOUNDED: Final = (
    Target("bits per weight at the error of Q8_0", 7.95, "bits", _bits_at("Q8_0")),
    Target("bits per weight at the error of Q4_0", 4.0, "bits", _bits_at("Q4_0")),
    Target("encoding BF16, bounded", 20, "MB/s", _bounded_encode_megabytes, at_least=True),
    Target("decoding BF16, bounded", 500, "MB/s", _bounded_decode_megabytes, at_least=True),
    Target("peak memory, bounded, 1 thread", 250, "MB", _peak_megabytes),
)
TARGETS: Final = {"safetensors": _SAFETENSORS, "bounded": _BOUNDED, "gguf": _GGUF}
