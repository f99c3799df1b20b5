"""Facts about the machine and the installation that ``doctor`` reports."""

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

DEPENDENCIES = ("numpy", "zstandard", "xxhash", "typer", "rich")
OPTIONAL_DEPENDENCIES = ("torch", "transformers", "cupy-cuda13x", "cupy-cuda12x")
# What the kernels ask of a processor; the others it has say nothing about Unweight.
CPU_FEATURES = ("ssse3", "avx2", "bmi2", "avx512f", "avx512bw", "avx512vbmi", "avx512_vbmi2")


@dataclass(frozen=True, slots=True)
class Space:
    """Free bytes where a directory lies; None where it cannot be told."""

    directory: str
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the installation. ``versions`` has None for what is not installed."""

    python: str
    executable: str
    platform: str
    processor: str
    processors: int
    cpu_features: tuple[str, ...]
    versions: dict[str, str | None]
    optional_versions: dict[str, str | None]
    working: Space
    temporary: Space

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON-ready data."""
        return asdict(self)


def describe_environment() -> Environment:
    """Look around; nothing is written and nothing is loaded."""
    model, flags = _cpu()
    return Environment(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        executable=sys.executable,
        platform=platform.platform(),
        processor=model,
        processors=usable_processors(),
        cpu_features=tuple(feature for feature in CPU_FEATURES if feature in flags),
        versions={name: _version(name) for name in DEPENDENCIES},
        optional_versions={name: _version(name) for name in OPTIONAL_DEPENDENCIES},
        working=_space(Path.cwd()),
        temporary=_space(Path(tempfile.gettempdir())),
    )


def usable_processors() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _space(directory: Path) -> Space:
    try:
        return Space(str(directory), shutil.disk_usage(directory).free)
    except OSError:
        return Space(str(directory), None)


def _cpu() -> tuple[str, frozenset[str]]:
    """Return the processor's name and feature flags, as far as the system tells them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine(), frozenset()
    pairs = (line.partition(":")[::2] for line in text.splitlines())
    # Later processors repeat what the first one says.
    values = {key.strip(): value.strip() for key, value in pairs}
    model = values.get("model name") or platform.processor() or platform.machine()
    return model, frozenset(values.get("flags", values.get("Features", "")).split())
