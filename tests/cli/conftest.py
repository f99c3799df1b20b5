"""Ways to run the command line, and reports to show."""

import errno
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import unweight_cli
import unweight_codecs
from unweight.operations.report import (
    CheckKind,
    FileReport,
    HeaderReport,
    OperationReport,
    StageReport,
    StagesReport,
    StreamReport,
    TensorReport,
)

SOURCE_ROOTS = {Path(package.__path__[0]).parent for package in (unweight_cli, unweight_codecs)}
TERMINAL_VARIABLES = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES")
SHA256 = "0123456789abcdef" * 4


def environment(**changes: str) -> dict[str, str]:
    """Return an environment in which a child process finds the packages under test."""
    kept = {key: value for key, value in os.environ.items() if key not in TERMINAL_VARIABLES}
    path = os.pathsep.join(map(str, sorted(SOURCE_ROOTS)))
    return {**kept, "PYTHONPATH": path, "TERM": "xterm-256color", **changes}


@pytest.fixture
def cli() -> Callable[..., CompletedProcess[str]]:
    """Return a function that runs the program, or a Python script, in pipes."""

    def run(
        *arguments: str | Path, script: str = "", cwd: Path | None = None, **variables: str
    ) -> CompletedProcess[str]:
        return subprocess.run(
            [*_program(script), *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=cwd,
            env=environment(**variables),
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def terminal() -> Callable[..., CompletedProcess[str]]:
    """Return a function that does the same on a terminal; all it shows there is in ``stdout``."""

    def run(
        *arguments: str | Path, script: str = "", columns: int = 80, **variables: str
    ) -> CompletedProcess[str]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        command = [*_program(script), *map(str, arguments)]
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**variables)
        ) as process:
            os.close(theirs)
            shown = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        text = shown.decode().replace("\r\n", "\n")
        return CompletedProcess(command, process.returncode, stdout=text, stderr="")

    return run


@pytest.fixture
def spawn() -> Callable[..., "subprocess.Popen[str]"]:
    """Return a function that starts a Python script in pipes and does not wait for it."""

    def start(*arguments: str | Path, script: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*_program(script), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    return start


def _program(script: str) -> list[str]:
    return [sys.executable, *(("-c", script) if script else ("-m", "unweight_cli"))]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError as error:
        if error.errno == errno.EIO:  # how Linux says that the other side is closed
            return b""
        raise


@pytest.fixture
def tensors() -> tuple[TensorReport, ...]:
    return (
        TensorReport("model.embed_tokens.weight", "BF16", (1000, 64), "default", 128_000, 84_000),
        TensorReport(
            "model.layers.0.self_attn.q_proj.weight", "BF16", (64, 64), "default", 8_192, 5_400
        ),
        TensorReport(
            "model.layers.0.mlp.up_proj.weight", "BF16", (256, 64), "default", 32_768, 21_600
        ),
        TensorReport("model.layers.0.input_layernorm.weight", "F32", (64,), "stored", 256, 256),
        TensorReport("evil\x1b[31m[bold]\nname", "I64", (), "stored", 8, 8),
    )


@pytest.fixture
def operation(tensors: tuple[TensorReport, ...]) -> Callable[[str], OperationReport]:
    """Return a function from the name of an operation to a report of it."""
    before, after = 169_224 + 1_000, 111_264 + 2_000
    file = FileReport(
        source="model.safetensors",
        target="model.unweight.safetensors",
        container="safetensors",
        source_bytes=before,
        target_bytes=after,
        source_sha256=SHA256,
        restored_sha256=SHA256,
        tensors=tensors,
    )

    def report(name: str) -> OperationReport:
        return OperationReport(
            operation=name,
            source=file.source,
            target=file.target,
            files=(file,),
            carried_files=2,
            carried_bytes=500,
            source_bytes=before + 500,
            target_bytes=after + 500,
            seconds=0.5,
            cpu_seconds=0.9,
            threads=2,
            kernel="portable",
            checked=CheckKind.WRITTEN,
            exact=True,
            bounded_tensors=0,
            max_epsilon=0.0,
            worst_error=0.0,
        )

    return report


@pytest.fixture
def header_report(tensors: tuple[TensorReport, ...]) -> HeaderReport:
    return HeaderReport(
        path="model.unweight.safetensors",
        container="safetensors",
        file_bytes=113_264,
        header_bytes=2_000,
        format_version=1,
        format_minor=0,
        generator="unweight 9.8.7",
        mode="lossless",
        epsilon=0.0,
        source_bytes=170_224,
        source_sha256=SHA256,
        restored_sha256=SHA256,
        source_header_bytes=1_000,
        pipelines=(
            {
                "name": "default",
                "stages": [
                    {"name": "outlier", "configuration": {}},
                    {"name": "grid", "configuration": {"bits": 12}},
                ],
            },
        ),
        metadata={"format": "pt", "long": "x" * 1000},
        tensors=tensors,
    )


@pytest.fixture
def stages_report(tensors: tuple[TensorReport, ...]) -> StagesReport:
    return StagesReport(
        path="model.unweight.safetensors",
        tensor=tensors[0],
        bits_per_element_source=16.0,
        bits_per_element_bound=10.4,
        bits_per_element_coded=10.5,
        overhead_bytes=700,
        stages=(
            StageReport("outlier", {}, {"window": "113-127", "escapes": 12}),
            StageReport("grid", {"mantissa_bits": 1}, {"symbols": 3}),
        ),
        streams=(StreamReport("symbols", 5, 64_000, 3.4, 3.5, 28_000, {"rans": 1}),),
        histogram=(("113", 10), ("114", 80), ("115", 10)),
    )
