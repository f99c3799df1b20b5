"""Whole processes: start, file I/O and checks included, as a user waits for them."""

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cpu.peers import ZIPNN_DTYPES
from benchmarks.data.dataset import DataSet, write_sparse
from unweight_codecs.errors import UnweightError

THREADS: Final = 2
LARGE_SIDE: Final = 1 << 15  # a BF16 matrix of 2 GiB
_CHILD: Final = Path(__file__).with_name("child.py")
_UNWEIGHT: Final = (sys.executable, "-m", "unweight_cli")
_ZIPNN: Final = (sys.executable, "-m", "benchmarks.cpu.zipnn_file")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line. ``tool`` and ``action`` are what the tables call it."""

    tool: str
    action: str
    data: str
    threads: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Medians over the runs of one command; ``peak_bytes`` is the greatest of them."""

    tool: str
    action: str
    data: str
    threads: int
    runs: int
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON-ready data."""
        return asdict(self)


def peer_commands(data: DataSet, folder: Path) -> list[Command]:
    """Return the commands of Unweight and its peers for a model, with ``THREADS`` threads.

    Each stands after the one whose output it reads.
    """
    source = str(data.path)
    chosen = [
        Command("unweight", "--version", "", 1, (*_UNWEIGHT, "--version")),
        *unweight_commands(data.name, data.path, folder, THREADS),
    ]
    coded, restored = str(folder / "model.zipnn"), str(folder / "zipnn.restored")
    options = (ZIPNN_DTYPES[data.dtype], str(THREADS))
    words = {
        "compress": (*_ZIPNN, "compress", *options, source, coded),
        "decompress": (*_ZIPNN, "decompress", *options, coded, restored),
    }
    chosen += _commands("zipnn", data.name, THREADS, words)
    if zstd := shutil.which("zstd"):
        coded, restored = str(folder / "model.zst"), str(folder / "zstd.restored")
        start = (zstd, "-q", "-f", f"-T{THREADS}")
        words = {
            "compress": (*start, "-3", source, "-o", coded),
            "decompress": (*start, "-d", coded, "-o", restored),
        }
        chosen += _commands("zstd -3", data.name, THREADS, words)
    return chosen


def large_commands(folder: Path) -> list[Command]:
    """Write a sparse file of 2 GiB to ``folder``; return the commands that go through it."""
    source = folder / "large.safetensors"
    write_sparse(source, LARGE_SIDE)
    return unweight_commands("2 GiB of zeros, BF16", source, folder, THREADS)


def unweight_commands(
    name: str, source: Path, folder: Path, threads: int, options: Sequence[str] = ()
) -> list[Command]:
    """Return the commands of Unweight for a file, each after the one whose output it reads.

    ``options`` are for compressing.
    """
    coded = str((folder / "unweight").with_suffix(source.suffix))
    restored = str(folder / "unweight.restored")
    work = ("--threads", str(threads))
    write = (*work, "--force", "-o")
    words = {
        "compress": (*_UNWEIGHT, "compress", str(source), *options, *write, coded),
        "decompress": (*_UNWEIGHT, "decompress", coded, *write, restored),
        "verify": (*_UNWEIGHT, "verify", coded, *work),
    }
    return _commands("unweight", name, threads, words)


def _commands(
    tool: str, data: str, threads: int, words: Mapping[str, tuple[str, ...]]
) -> list[Command]:
    return [Command(tool, action, data, threads, line) for action, line in words.items()]


def run_commands(chosen: Sequence[Command], rounds: int) -> list[ProcessFigures]:
    """Run every command once per round, in order; raises UnweightError when one fails."""
    costs: list[list[Cost]] = [[] for _ in chosen]
    for _ in range(rounds):
        for command, own in zip(chosen, costs, strict=True):
            own.append(_run(command))
    return [
        ProcessFigures(
            tool=command.tool,
            action=command.action,
            data=command.data,
            threads=command.threads,
            runs=rounds,
            wall_seconds=statistics.median(cost.wall_seconds for cost in own),
            cpu_seconds=statistics.median(cost.cpu_seconds for cost in own),
            peak_bytes=max(cost.peak_bytes for cost in own),
        )
        for command, own in zip(chosen, costs, strict=True)
    ]


def _run(command: Command) -> Cost:
    words = [sys.executable, "-I", "-S", str(_CHILD), *command.words]
    done = subprocess.run(words, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnweightError(
            f"{command.tool} {command.action} ended with exit code {done.returncode}: {last}"
        )
    return Cost(**json.loads(done.stdout))
