"""Interrupts at random moments: a final name is never half-written, and a rerun succeeds."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import environment
from tests.support.models import large_model
from unweight_cli.app import run
from unweight_codecs.kernels import active_kernel
from unweight_codecs.output import TEMPORARY_MARK

TIMES = 20
# Large enough that most of a run is work on it.
MEGABYTES = 1 if active_kernel() == "reference" else 30

Kill = Callable[[list[str], signal.Signals, float], int]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_model(tmp_path_factory.mktemp("signals") / "model.safetensors", MEGABYTES)


@pytest.fixture(scope="module")
def coded(model: Path) -> Path:
    path = model.with_name("reference.safetensors")
    assert run(["compress", str(model), "-o", str(path), "-q"]) == 0
    return path


def temporaries(folder: Path) -> set[Path]:
    return {path for path in folder.iterdir() if TEMPORARY_MARK in path.name}


def start(line: list[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "unweight_cli", *line, "--quiet"]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)


def work_seconds(line: list[str], folder: Path) -> float:
    """Return how long a run works on its output, from the temporary file to the end."""
    with start(line) as process:
        wait_for_work(process, folder)
        begun = time.monotonic()
        assert process.wait() == 0
    return time.monotonic() - begun


def wait_for_work(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    while process.poll() is None and not temporaries(folder):
        time.sleep(0.001)


def killed(line: list[str], folder: Path, number: signal.Signals, delay: float) -> int:
    """Run a command and send a signal ``delay`` seconds after it began to work."""
    with start(line) as process:
        wait_for_work(process, folder)
        time.sleep(delay)
        process.send_signal(number)
        error = process.communicate()[1].decode()
    if number != signal.SIGKILL:
        assert "Traceback" not in error
    return process.returncode


def moments(seconds: float, count: int) -> list[float]:
    """Return random delays, evenly spread so that early and late moments both occur."""
    generator = random.Random(7)  # noqa: S311 - moments for a test
    return [(k + generator.random()) * seconds / count for k in range(count)]


@pytest.mark.parametrize(
    ("number", "code", "times"), [(signal.SIGINT, 130, TIMES), (signal.SIGTERM, 143, 5)]
)
def test_compress_cleans_up(
    number: signal.Signals, code: int, times: int, model: Path, coded: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.safetensors"
    line = ["compress", str(model), "-o", str(target)]
    codes = []
    seconds = work_seconds(line, tmp_path)
    for delay in moments(seconds, times):
        target.unlink(missing_ok=True)
        codes.append(killed(line, tmp_path, number, delay))
        assert temporaries(tmp_path) == set()
        assert not target.exists() or target.read_bytes() == coded.read_bytes()
    assert code in codes
    # A signal may come when all is done: before the result is reported, or after the end.
    assert set(codes) <= {code, 0, -number}
    assert run([*line, "--force", "--quiet"]) == 0
    assert target.read_bytes() == coded.read_bytes()


def test_compress_killed_leaves_only_what_is_recognised(
    model: Path, coded: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    source = folder / "model.safetensors"
    source.hardlink_to(model)
    target = folder / "model.unweight.safetensors"
    line = ["compress", str(source)]
    seconds = work_seconds(line, folder)
    leftovers: set[Path] = set()
    for delay in moments(seconds, TIMES):
        target.unlink(missing_ok=True)
        # One that is there already must not pass for the one of the next run.
        for path in temporaries(folder):
            leftovers.add(path.rename(tmp_path / path.name))
        killed(line, folder, signal.SIGKILL, delay)
        assert {path.name for path in folder.iterdir()} - {source.name, target.name} == {
            path.name for path in temporaries(folder)
        }
        assert not target.exists() or target.read_bytes() == coded.read_bytes()
    assert leftovers
    for path in leftovers:
        assert path.name.startswith(".")
        if not (folder / path.name).exists():
            path.rename(folder / path.name)

    target.unlink(missing_ok=True)
    assert run([*line, "--quiet"]) == 0
    assert target.read_bytes() == coded.read_bytes()
    target.unlink()
    packed = tmp_path / "packed"
    assert run(["compress", str(folder), "-o", str(packed), "--quiet"]) == 0
    assert (packed / source.name).read_bytes() == coded.read_bytes()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_decompress(
    number: signal.Signals, code: int, model: Path, coded: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.safetensors"
    target.write_text("the old one")
    line = ["decompress", str(coded), "-o", str(target), "--force"]
    seconds = work_seconds(line, tmp_path)
    codes = set()
    for delay in moments(seconds, 5):
        target.write_text("the old one")
        codes.add(killed(line, tmp_path, number, delay))
        left = temporaries(tmp_path)
        assert left == set() or number == signal.SIGKILL
        for path in left:
            path.unlink()
        assert target.read_bytes() in (b"the old one", model.read_bytes())
    assert code in codes


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_directories(
    number: signal.Signals, code: int, model: Path, coded: Path, tmp_path: Path
) -> None:
    folder, target = tmp_path / "folder", tmp_path / "folder.unweight"
    folder.mkdir()
    (folder / model.name).hardlink_to(model)
    (folder / "config.json").write_text("{}")
    line = ["compress", str(folder), "--force"]
    seconds = work_seconds(line, tmp_path)
    codes = set()
    for delay in moments(seconds, 5):
        (target / "config.json").write_text("the old one")
        codes.add(killed(line, tmp_path, number, delay))
        assert set(tmp_path.iterdir()) == {folder, target}
        assert (target / "config.json").read_text() in {"the old one", "{}"}
        assert (target / model.name).read_bytes() == coded.read_bytes()
    assert code in codes
