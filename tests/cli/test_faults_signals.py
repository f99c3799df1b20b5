"""Interrupts at random moments: a final name is never half-written, and a rerun succeeds."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import unweight_cli
from tests.cli.conftest import environment
from tests.support.models import large_model
from tests.support.signals import SIGNALS
from unweight.output import TEMPORARY_MARK
from unweight_cli.app import run
from unweight_codecs.kernels import active_kernel

MAX_FURTHER = 30  # runs, where none was disturbed while it worked
ROOT = Path(unweight_cli.__file__).parents[1]

RunCli = Callable[..., subprocess.CompletedProcess[str]]
Spawn = Callable[..., "subprocess.Popen[str]"]
# Exit code and stderr of a run that a signal has ended.
ENDINGS = {
    (130, "unweight: error: interrupted\n"),
    (143, "unweight: error: terminated\n"),
    (129, "unweight: error: terminated\n"),
}

# A signal that comes while a finaliser runs, after the last piece of the output is written. Python
# drops what the handler raises there.
FINALISER = """
import os, signal
from unweight_cli.__main__ import main
from unweight.archive import ArchiveWriter
from unweight.operations import decompress

class Fuse:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the handler runs before this line")

def last(work):
    def replaced(*arguments):
        result = work(*arguments)
        Fuse()
        return result
    return replaced

ArchiveWriter.finish = last(ArchiveWriter.finish)
decompress.restore = last(decompress.restore)
main()
"""
# A signal that comes before an object has all of its attributes, which its finaliser then misses.
UNFINISHED = """
import os, signal
from unweight_cli.__main__ import main
from unweight.archive import ArchiveWriter

class Unfinished:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGINT)
        self.name = ""
    def __del__(self):
        self.name

def interrupted(*arguments):
    Unfinished()
ArchiveWriter.finish = interrupted
main()
"""
# Modules are loaded after the line, which comes when the handlers are about to be installed.
START = """
from unweight_cli.__main__ import main
print("starts", flush=True)
main()
"""


# Says which signals are not ignored where it runs.
DISPOSITIONS = f"""
import signal
for number in {tuple(map(int, SIGNALS))}:
    print(signal.getsignal(number) != signal.SIG_IGN)
"""
# Ignores signals, as nohup and the & of a shell do, and then starts the program above.
IGNORANT = f"""
import os, signal, subprocess, sys
from tests.support.signals import SIGNALS, not_ignored_by_children
for number in SIGNALS:
    signal.signal(number, signal.SIG_IGN)
command = [sys.executable, "-c", {DISPOSITIONS!r}]
subprocess.run(command, check=True)
with not_ignored_by_children():
    subprocess.run(command, check=True)
    for number in SIGNALS:
        os.kill(os.getpid(), number)
subprocess.run(command, check=True)
"""


@dataclass(frozen=True, slots=True)
class Effort:
    """How large a model is, and at how many moments a run on it is disturbed."""

    megabytes: int
    many: int
    few: int


# So large that most of a run is work on it. The more moments, the more places in the code they hit.
EFFORTS = (
    pytest.param(Effort(megabytes=1 if active_kernel() == "reference" else 8, many=6, few=3)),
    pytest.param(Effort(megabytes=30, many=20, few=5), marks=pytest.mark.slow),
)


@pytest.fixture(scope="module", params=EFFORTS, ids=lambda effort: f"{effort.megabytes} MB")
def effort(request: pytest.FixtureRequest) -> Effort:
    assert isinstance(request.param, Effort)
    return request.param


@pytest.fixture(scope="module")
def model(effort: Effort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_model(tmp_path_factory.mktemp("signals") / "model.safetensors", effort.megabytes)


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
        assert (process.returncode, error) in {(0, ""), *ENDINGS}
    return process.returncode


def moments(seconds: float, count: int, hit: Callable[[], bool]) -> Iterator[float]:
    """Yield random delays, evenly spread so that early and late moments both occur.

    On a busy machine ``seconds`` may be measured so long that all of them come after the end of a
    run. Then no delay follows, again and again until the signal has ``hit`` a run that works.
    """
    generator = random.Random(7)  # noqa: S311 - moments for a test
    yield from ((k + generator.random()) * seconds / count for k in range(count))
    for _ in range(MAX_FURTHER):
        if hit():
            break
        yield 0.0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_compress_cleans_up(
    number: signal.Signals, code: int, effort: Effort, model: Path, coded: Path, tmp_path: Path
) -> None:
    times = effort.many if number == signal.SIGINT else effort.few  # one handler serves them all
    target = tmp_path / "out.safetensors"
    line = ["compress", str(model), "-o", str(target)]
    codes = []
    seconds = work_seconds(line, tmp_path)
    for delay in moments(seconds, times, lambda: code in codes):
        target.unlink(missing_ok=True)
        codes.append(killed(line, tmp_path, number, delay))
        assert temporaries(tmp_path) == set()
        # A signal may come when all is done; only then does it change nothing.
        assert codes[-1] in ({code, 0} if target.exists() else {code})
        assert not target.exists() or target.read_bytes() == coded.read_bytes()
    assert code in codes
    assert run([*line, "--force", "--quiet"]) == 0
    assert target.read_bytes() == coded.read_bytes()


def test_compress_killed_leaves_only_what_is_recognised(
    effort: Effort, model: Path, coded: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    source = folder / "model.safetensors"
    source.hardlink_to(model)
    target = folder / "model.unweight.safetensors"
    line = ["compress", str(source)]
    seconds = work_seconds(line, folder)
    leftovers: set[Path] = set()
    for delay in moments(seconds, effort.many, lambda: bool(leftovers)):
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
    number: signal.Signals, code: int, effort: Effort, model: Path, coded: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.safetensors"
    target.write_text("the old one")
    line = ["decompress", str(coded), "-o", str(target), "--force"]
    seconds = work_seconds(line, tmp_path)
    codes = set()
    for delay in moments(seconds, effort.few, lambda: code in codes):
        target.write_text("the old one")
        last = killed(line, tmp_path, number, delay)
        assert last == code or (last == 0 and target.read_bytes() == model.read_bytes())
        codes.add(last)
        left = temporaries(tmp_path)
        assert left == set() or number == signal.SIGKILL
        for path in left:
            path.unlink()
        assert target.read_bytes() in (b"the old one", model.read_bytes())
    assert code in codes


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_directories(
    number: signal.Signals, code: int, effort: Effort, model: Path, coded: Path, tmp_path: Path
) -> None:
    folder, target = tmp_path / "folder", tmp_path / "folder.unweight"
    folder.mkdir()
    (folder / model.name).hardlink_to(model)
    (folder / "config.json").write_text("{}")
    line = ["compress", str(folder), "--force"]
    seconds = work_seconds(line, tmp_path)
    codes = set()
    for delay in moments(seconds, effort.few, lambda: code in codes):
        (target / "config.json").write_text("the old one")
        last = killed(line, tmp_path, number, delay)
        assert last == code or (last == 0 and (target / "config.json").read_text() == "{}")
        codes.add(last)
        assert set(tmp_path.iterdir()) == {folder, target}
        assert (target / "config.json").read_text() in {"the old one", "{}"}
        assert (target / model.name).read_bytes() == coded.read_bytes()
    assert code in codes


@pytest.mark.parametrize("command", ["compress", "decompress"])
def test_a_signal_inside_a_finaliser_is_not_lost(
    command: str, model: Path, coded: Path, tmp_path: Path, cli: RunCli
) -> None:
    source = model if command == "compress" else coded
    done = cli(command, source, "-o", tmp_path / "out.safetensors", script=FINALISER)
    assert done.returncode == 130
    assert done.stderr == "unweight: error: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_a_signal_inside_a_constructor_leaves_no_traceback_behind(
    model: Path, tmp_path: Path, cli: RunCli
) -> None:
    done = cli("compress", model, "-o", tmp_path / "out.safetensors", script=UNFINISHED)
    assert (done.returncode, done.stderr) == (130, "unweight: error: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_takes_long_is_loaded_before_signals_are_handled() -> None:
    script = (
        f"import sys; sys.path.append({str(ROOT)!r}); import unweight_cli.__main__;"
        "print(*{'typing', 're', 'contextlib', 'pathlib', 'numpy', 'typer'} & set(sys.modules))"
    )
    command = [sys.executable, "-I", "-S", "-c", script]  # without what site loads
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert loaded == "\n"


def test_further_signals_do_not_disturb_the_end(
    effort: Effort, model: Path, tmp_path: Path
) -> None:
    line = ["compress", str(model), "-o", str(tmp_path / "out.safetensors")]
    for _ in range(effort.few):
        with start(line) as process:
            wait_for_work(process, tmp_path)
            while process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGTERM)
            error = process.communicate()[1].decode()
        # The two may wait on different threads, and then either can be the first.
        assert (process.returncode, error) in ENDINGS
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("milliseconds", [10, 20, 35, 50, 75, 100, 150, 200])
def test_a_signal_while_the_program_starts(
    milliseconds: int, model: Path, coded: Path, tmp_path: Path, spawn: Spawn
) -> None:
    target = tmp_path / "out.safetensors"
    with spawn("compress", model, "-o", target, "--quiet", script=START) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        error = process.communicate()[1]
    if target.exists():
        assert process.returncode in (0, 130)
        assert target.read_bytes() == coded.read_bytes()
    else:
        assert (process.returncode, error) == (130, "unweight: error: interrupted\n")
    assert temporaries(tmp_path) == set()


def test_a_signal_that_the_caller_ignores_stays_ignored(model: Path, tmp_path: Path) -> None:
    line = ["compress", str(model), "-o", str(tmp_path / "out.safetensors"), "--quiet"]
    command = ["nohup", sys.executable, "-m", "unweight_cli", *line]  # ignores SIGHUP
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE) as process:
        wait_for_work(process, tmp_path)
        process.send_signal(signal.SIGHUP)
        process.communicate()
    assert process.returncode == 0


def test_children_have_the_default_actions_of_signals() -> None:
    command = [sys.executable, "-c", DISPOSITIONS]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["True"] * len(SIGNALS)


def test_children_of_a_process_that_ignores_signals_need_not_ignore_them(cli: RunCli) -> None:
    done = cli(script=IGNORANT, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    before, meanwhile, after = (["False"] * 4, ["True"] * 4, ["False"] * 4)
    assert done.stdout.split() == [*before, *meanwhile, *after]
