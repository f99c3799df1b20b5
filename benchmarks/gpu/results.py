"""Everything that one run on a device found, kept even if a part of it fails."""

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.cases import Line
from benchmarks.gpu.figures import Figure, report
from benchmarks.gpu.peers import version
from unweight.environment import describe_environment
from unweight_codecs.errors import IntegrityError, ResourceError, UnweightError
from unweight_codecs.kernels import active_kernel

PACKAGES: Final = ("unweight", "cupy-cuda13x", "cupy-cuda12x", "torch", "nvidia-nvcomp-cu13")
_CAPTION: Final = (
    "Median (least-greatest). TB/s and GB/s count the bytes of plain words, for the copy all bytes "
    "read and written. Targets are for an H200."
)

Group = tuple[str, Callable[[], Line]]
Section = tuple[str, Callable[[], Iterable[Figure]]]


@dataclass(slots=True)
class Results:
    """What was compared and measured, in order; ``failures`` are the exit codes of what failed."""

    device: str
    file: Path | None = None
    checks: list[Line] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    begin: float = field(default_factory=time.perf_counter)

    def compare(self, groups: Sequence[Group]) -> None:
        """Compare group by group; raises IntegrityError at the first difference."""
        for name, group in groups:
            with _Kept(self, name):
                line = group()
                self.checks.append(line)
                self.tell(str(line))

    def measure(self, sections: Sequence[Section]) -> None:
        """Measure section by section; raises IntegrityError for a wrong result."""
        for name, section in sections:
            with _Kept(self, name):
                for figure in section():
                    self.figures.append(figure)
                    self.tell(f"measured: {figure.name}, {figure.size}")

    def tell(self, what: str) -> None:
        """Print a line, with the time since the beginning."""
        print(f"{time.perf_counter() - self.begin:6.1f} s  {what}", flush=True)

    def save(self) -> None:
        """Write what there is to the file, if one is wanted; raises ResourceError."""
        if self.file is None:
            return
        text = json.dumps(self.to_dict(), indent=2)
        try:
            self.file.write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            message = f"{self.file}: {error.strerror}"
            raise ResourceError(message, hint="name another file") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the results, and where and when they were found, as JSON-ready data."""
        host = describe_environment()
        return {
            "device": self.device,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": {
                "processor": host.processor,
                "processors": host.processors,
                "platform": host.platform,
                "python": host.python,
                "kernel": active_kernel(),
            },
            "versions": {package: version(package) for package in PACKAGES},
            "seconds": time.perf_counter() - self.begin,
            "checks": [asdict(line) for line in self.checks],
            "figures": [figure.to_dict() for figure in self.figures],
            "notes": self.notes,
        }

    def text(self) -> str:
        """Return the table, and what is to be said of it."""
        notes = (f"Note: {note}" for note in self.notes)
        return "\n\n".join([self.device, report(self.figures), _CAPTION, *notes])


@dataclass(frozen=True, slots=True)
class _Kept:
    """Lets the rest go on when a part fails, and saves; a difference ends everything."""

    results: Results
    name: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        results = self.results
        if isinstance(error, Exception):
            if not isinstance(error, UnweightError):
                traceback.print_exception(error, file=sys.stderr)
            line = " ".join(str(error).split()) or type(error).__name__
            results.notes.append(f"{self.name} failed: {line}")
            results.tell(results.notes[-1])
            results.failures.append(getattr(error, "exit_code", 1))
        results.save()
        return isinstance(error, Exception) and not isinstance(error, IntegrityError)
