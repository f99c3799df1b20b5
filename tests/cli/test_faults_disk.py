"""Full disks: one line that says how much is missing and where, and no half-written output."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.models import large_model
from unweight_cli.app import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return an empty file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("only the superuser can mount a small file system")
    line = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(line, check=False, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run([umount, folder], check=True)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return large_model(tmp_path / "source" / "model.safetensors", 4)


@pytest.fixture
def coded(model: Path, tmp_path: Path) -> Path:
    """Return a compressed directory."""
    target = tmp_path / "packed"
    assert run(["compress", str(model.parent), "-o", str(target), "-q"]) == 0
    return target


def no_room(line: list[str], target: Path, capsys: Capture) -> None:
    """Run a command that must fail for lack of space, saying so."""
    free = shutil.disk_usage(target.parent).free
    assert run([*line, "-o", str(target)]) == 6
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"unweight: error: {target}")
    assert "bytes needed" in shown.err
    assert shown.err.count("\n") == 1
    assert list(target.parent.iterdir()) == []
    assert shutil.disk_usage(target.parent).free == free


@pytest.mark.parametrize("threads", ["1", "4"])
def test_compressing_a_file(threads: str, model: Path, small_disk: Path, capsys: Capture) -> None:
    before = model.read_bytes()
    no_room(["compress", str(model), "--threads", threads], small_disk / "out", capsys)
    assert model.read_bytes() == before


def test_compressing_a_directory(model: Path, small_disk: Path, capsys: Capture) -> None:
    no_room(["compress", str(model.parent)], small_disk / "out", capsys)


def test_compressing_a_directory_of_which_most_is_carried(
    model: Path, small_disk: Path, capsys: Capture
) -> None:
    (model.parent / "big.bin").write_bytes(bytes(3 << 20))
    no_room(["compress", str(model.parent)], small_disk / "out", capsys)


@pytest.mark.parametrize("seen_before", [True, False], ids=["known before", "filling up"])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_decompressing(
    kind: str,
    seen_before: bool,
    coded: Path,
    small_disk: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not seen_before:
        monkeypatch.setattr(
            "unweight.operations.decompress.check_space", lambda target, needed: None
        )
    source = coded / "model.safetensors" if kind == "file" else coded
    no_room(["decompress", str(source)], small_disk / "out", capsys)


@pytest.mark.parametrize("command", ["compress", "decompress"])
def test_carried_files_that_fill_the_disk(
    command: str, coded: Path, small_disk: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = coded if command == "decompress" else coded.with_name("source")
    (source / "big.bin").write_bytes(bytes(3 << 20))
    monkeypatch.setattr(f"unweight.operations.{command}.check_space", lambda *_: None)
    no_room([command, str(source)], small_disk / "out", capsys)


def test_room_again(model: Path, small_disk: Path, tmp_path: Path, capsys: Capture) -> None:
    """A failure must not stand in the way of the next run."""
    no_room(["compress", str(model)], small_disk / "out", capsys)
    small = large_model(tmp_path / "small.safetensors", 1)
    assert run(["compress", str(small), "-o", str(small_disk / "out"), "-q"]) == 0
    assert run(["verify", str(small_disk / "out"), "--against", str(small), "-q"]) == 0


@pytest.mark.parametrize("command", ["compress", "decompress"])
def test_a_limit_on_the_size_of_files(
    command: str, coded: Path, tmp_path: Path, capsys: Capture
) -> None:
    source = coded if command == "decompress" else coded.with_name("source")
    target = tmp_path / "out"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        code = run([command, str(source / "model.safetensors"), "-o", str(target)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 6
    assert f"{target}: cannot be written: File too large" in capsys.readouterr().err
    assert set(tmp_path.iterdir()) == {coded, coded.with_name("source")}
