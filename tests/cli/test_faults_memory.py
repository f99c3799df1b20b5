"""Memory stays flat, whatever the size of a model."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import environment
from tests.support.models import sparse_model
from unweight_codecs.kernels import active_kernel

pytestmark = pytest.mark.skipif(
    active_kernel() == "reference", reason="gigabytes take too long on the reference kernels"
)

# Runs a command line and prints its exit code, its report, and the most memory it had. On Linux
# getrusage would do for a program, but not for a test: a process inherits the peak of the one that
# it was forked from, here the one that runs the tests.
SCRIPT = """
import json, pathlib, resource, sys
from unweight_cli.app import run
code = run(sys.argv[1:])
status = pathlib.Path("/proc/self/status")
if status.exists():
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    peak = int(fields["VmHWM"].split()[0]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([code, peak]), file=sys.stderr)
"""
# A run holds a few spans per thread, about 90 MB in all with Python and its libraries.
MAX_PEAK = 160 << 20


def peak_memory(*line: str | Path, limit: int | None = None) -> int:
    """Run a command line that must succeed, and return its peak resident bytes."""

    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, line), "--quiet"],
        preexec_fn=restrict,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    code, peak = json.loads(result.stderr.splitlines()[-1])
    assert code == 0, result.stderr
    return int(peak)


def same(one: Path, two: Path) -> bool:
    with one.open("rb") as a, two.open("rb") as b:
        while (left := a.read(1 << 22)) == b.read(1 << 22):
            if not left:
                return True
    return False


@pytest.fixture
def round_trip(tmp_path: Path) -> Callable[[int, int | None], list[int]]:
    """Return a function that does everything to a model of so many mebibytes."""

    def run(mebibytes: int, limit: int | None) -> list[int]:
        model = sparse_model(tmp_path / "model.safetensors", mebibytes)
        coded, restored = tmp_path / "coded", tmp_path / "restored"
        threads = ("--threads", "2")
        peaks = [
            peak_memory("compress", model, "-o", coded, *threads, limit=limit),
            peak_memory("verify", coded, "--against", model, *threads, limit=limit),
            peak_memory("decompress", coded, "-o", restored, *threads, limit=limit),
        ]
        assert same(model, restored)
        return peaks

    return run


def test_a_run_takes_less_memory_than_its_file(
    round_trip: Callable[[int, int | None], list[int]],
) -> None:
    peaks = round_trip(256, None)
    assert max(peaks) <= MAX_PEAK


@pytest.mark.slow
def test_a_shard_of_a_gigabyte_with_little_memory(
    round_trip: Callable[[int, int | None], list[int]],
) -> None:
    peaks = round_trip(1 << 10, 1_500_000_000)
    assert max(peaks) <= MAX_PEAK


@pytest.mark.slow
def test_offsets_beyond_32_bits(round_trip: Callable[[int, int | None], list[int]]) -> None:
    peaks = round_trip(5 << 10, None)
    assert max(peaks) <= MAX_PEAK
