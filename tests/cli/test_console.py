"""Terminals, pipes, colours and readers that leave early."""

import json
import signal
import subprocess
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

RunCli = Callable[..., CompletedProcess[str]]

# A command line whose compress takes its time and then fails.
SLOW = """
import sys, time
import unweight

def compress(path, output, *, progress, **options):
    progress.begin("model-00001-of-00002-with-a-long-name.safetensors", 1_000_000)
    progress.advance(500_000)
    try:
        print("ready", file=sys.stderr, flush=True)
        time.sleep(SECONDS)
    finally:
        print("cleaned", file=sys.stderr, flush=True)
    raise ZeroDivisionError("at the end")

unweight.compress = compress
from unweight_cli.__main__ import main
main()
"""
EMIT = """
import sys
from rich.text import Text
from unweight_cli.terminal.console import emit
text = Text("painted", style="bold red")
emit({"name": "\\udcff\\u00fc"}, lambda: [text, "[red]literal :smile:"],
     as_json="--json" in sys.argv, quiet="--quiet" in sys.argv)
"""

CLOSED_PIPE = """
import os
reading, writing = os.pipe()
os.dup2(writing, 1)
os.close(writing)
os.close(reading)
from unweight_cli.__main__ import main
main()
"""
# Python looks at its streams when it starts, so another one starts without them.
CLOSED = """
import os, sys
for number in "CLOSED".split():
    os.close(int(number))
os.execv(sys.executable, [sys.executable, "-m", "unweight_cli", *sys.argv[1:]])
"""
FULL_DISK = """
import os
for stream in (1,):
    os.dup2(os.open("/dev/full", os.O_WRONLY), stream)
from unweight_cli.__main__ import main
main()
"""


def test_a_terminal_gets_colours(terminal: RunCli) -> None:
    assert "\x1b[1;31mpainted" in terminal(script=EMIT).stdout


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(variables: dict[str, str], terminal: RunCli) -> None:
    assert "\x1b" not in terminal(script=EMIT, **variables).stdout


def test_a_pipe_gets_plain_text(cli: RunCli) -> None:
    assert cli(script=EMIT).stdout == "painted\n[red]literal :smile:\n"


def test_a_pipe_gets_plain_text_even_when_colours_are_forced(cli: RunCli) -> None:
    assert "\x1b" not in cli(script=EMIT, FORCE_COLOR="1").stdout


def test_json_is_ascii_and_wins_over_quiet(cli: RunCli) -> None:
    done = cli("--json", "--quiet", script=EMIT)
    assert done.stdout.isascii()
    assert json.loads(done.stdout) == {"name": "\udcff\u00fc"}


def test_quiet_prints_nothing(cli: RunCli) -> None:
    done = cli("--quiet", script=EMIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_encoding_without_the_characters_is_survived(cli: RunCli) -> None:
    done = cli("doctor", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("line", ["codecs", "codecs --json", "--help", "", "--version"])
@pytest.mark.parametrize("closed", ["1", "2", "1 2", "0 1 2"])
def test_closed_streams_are_nowhere(line: str, closed: str, cli: RunCli) -> None:
    done = cli(*line.split(), script=CLOSED.replace("CLOSED", closed))
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == ("1" not in closed)


def test_files_do_not_get_the_number_of_a_closed_stream(cli: RunCli) -> None:
    code = (
        "import os; from unweight_cli.terminal import streams; streams.prepare(); exit(os.dup(0))"
    )
    script = CLOSED.replace("CLOSED", "0 1 2").replace('"-m", "unweight_cli"', f'"-c", {code!r}')
    assert cli(script=script).returncode > 2


@pytest.mark.parametrize("line", ["codecs", "codecs --json", "", "--help", "--version"])
@pytest.mark.parametrize("full", [(1,), (1, 2)])
def test_full_streams(line: str, full: tuple[int, ...], cli: RunCli) -> None:
    done = cli(*line.split(), script=FULL_DISK.replace("(1,)", str(full)))
    assert done.returncode == 6
    assert done.stdout == ""
    assert done.stderr.count("\n") == (2 not in full)


def test_a_full_stderr_changes_no_exit_code(cli: RunCli) -> None:
    script = FULL_DISK.replace("(1,)", "(1, 2)")
    assert cli("compress", "missing", "--json", script=script).returncode == 2
    assert cli("codecs", script=script.replace("(1, 2)", "(2,)")).returncode == 0


@pytest.mark.parametrize("line", ["codecs", "codecs --json", "", "--version"])
def test_a_reader_that_leaves_is_no_error(line: str, cli: RunCli) -> None:
    done = cli(*line.split(), script=CLOSED_PIPE)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_leaves_does_not_hide_an_error(cli: RunCli) -> None:
    done = cli("compress", "missing", "--json", script=CLOSED_PIPE)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_full_disk_is_reported(cli: RunCli) -> None:
    done = cli("codecs", script=FULL_DISK)
    assert done.returncode == 6
    assert "No space left" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bar_is_drawn_on_a_terminal_and_taken_away(terminal: RunCli) -> None:
    done = terminal("compress", ".", script=SLOW.replace("SECONDS", "0"))
    assert "long-name.safetensors" in done.stdout
    assert "0.5/1.0 MB" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].endswith("what --debug shows)")


@pytest.mark.parametrize("flags", [(), ("--quiet",)])
def test_no_bar_in_a_pipe(flags: tuple[str, ...], cli: RunCli) -> None:
    done = cli("compress", ".", *flags, script=SLOW.replace("SECONDS", "0"))
    assert "long-name" not in done.stderr


def test_no_bar_on_a_terminal_with_quiet(terminal: RunCli) -> None:
    done = terminal("compress", ".", "--quiet", script=SLOW.replace("SECONDS", "0"))
    assert "long-name" not in done.stdout


def test_an_internal_error_is_one_line_without_debug(cli: RunCli) -> None:
    done = cli("compress", ".", script=SLOW.replace("SECONDS", "0"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "internal error: ZeroDivisionError: at the end" in done.stderr


def test_debug_shows_the_traceback(cli: RunCli) -> None:
    done = cli("compress", ".", "--debug", script=SLOW.replace("SECONDS", "0"))
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGINT, 130, "unweight: error: interrupted"),
        (signal.SIGTERM, 143, "unweight: error: terminated"),
        (signal.SIGHUP, 129, "unweight: error: terminated"),
    ],
)
def test_a_signal_ends_the_run_and_lets_it_clean_up(
    number: int, code: int, words: str, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    with spawn("compress", ".", script=SLOW.replace("SECONDS", "60")) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate()
    assert process.returncode == code
    assert out == ""
    assert err.splitlines() == ["cleaned", words]
