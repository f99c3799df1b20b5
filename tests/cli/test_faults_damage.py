"""What the whole program does with damaged and deceiving files, given little memory."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import environment
from tests.support import edits
from tests.support.frames import TERABYTE
from tests.support.models import SMALL_MODEL_STAGES, small_model
from tests.support.surgery import Archive
from unweight_cli.app import run

ADDRESS_SPACE = 600 << 20


@pytest.fixture
def coded(tmp_path: Path) -> Path:
    model = small_model(tmp_path / "model.safetensors")
    target = tmp_path / "coded.safetensors"
    stages = [word for stage in SMALL_MODEL_STAGES for word in ("--stage", stage)]
    assert run(["compress", str(model), "-o", str(target), "-q", *stages]) == 0
    model.unlink()
    return target


def restricted(*line: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run the program with an address space of 600 MB."""

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

    return subprocess.run(
        [sys.executable, "-m", "unweight_cli", *map(str, line)],
        preexec_fn=restrict,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def refused(path: Path, code: int, words: str) -> None:
    """Expect that a file is not decompressed, and that nothing is written."""
    before = set(path.parent.iterdir())
    result = restricted("decompress", path, "-o", path.with_name("out"), "--json")
    assert result.returncode == code, result.stderr
    assert result.stderr.startswith("unweight: error: ")
    assert result.stderr.count("\n") == 1
    error = json.loads(result.stdout)["error"]
    assert error["exit_code"] == code
    assert re.search(words, f"{error['message']} {error['hint']}")
    assert str(path) in error["message"]
    assert set(path.parent.iterdir()) == before


def test_little_memory_is_enough(coded: Path) -> None:
    assert restricted("verify", coded, "--quiet").returncode == 0


@pytest.mark.parametrize(
    ("place", "code", "words"),
    [
        (3, 3, "not|header"),
        (200, 4, "header is damaged"),
        (-10, 4, "checksum"),
        (-9000, 4, "damaged"),
    ],
    ids=["length", "header", "end", "middle"],
)
def test_a_flipped_bit(place: int, code: int, words: str, coded: Path) -> None:
    data = bytearray(coded.read_bytes())
    data[place] ^= 1
    coded.write_bytes(data)
    refused(coded, code, words)


@pytest.mark.parametrize("size", [0, 7, 9, 1000, -1])
def test_a_file_cut_short(size: int, coded: Path) -> None:
    coded.write_bytes(coded.read_bytes()[:size])
    refused(coded, 3, "again")


@pytest.mark.parametrize(
    ("edit", "code", "words"),
    [
        (edits.manifest("format", to=[2, 0]), 3, r"version 2\.0.*reads up to 1\.x.*upgrade"),
        (edits.manifest("features", to=["tiled"]), 3, "tiled.*upgrade"),
        (edits.manifest("mode", to="error-bounded"), 3, "error-bounded.*upgrade"),
        (edits.manifest("source", "size", to=TERABYTE), 4, "damaged"),
        (edits.shape(edits.CODED, [1 << 32, 128], TERABYTE), 4, edits.CODED),
        (edits.huge_scales, 4, edits.CODED),
    ],
    ids=["version", "feature", "mode", "size", "tensor", "scales"],
)
def test_a_file_made_to_deceive(edit: edits.Edit, code: int, words: str, coded: Path) -> None:
    archive = Archive.read(coded)
    edit(archive)
    refused(archive.write(coded, {"format": "pt"}), code, words)
