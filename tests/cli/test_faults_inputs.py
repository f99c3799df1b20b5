"""Inputs that are not what the command wants, and names that are hard to handle."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.models import small_model
from unweight_cli.app import run

Capture = pytest.CaptureFixture[str]
Cli = Callable[..., CompletedProcess[str]]


def refused(arguments: list[str], capsys: Capture, code: int, words: str) -> None:
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.err.startswith("unweight: error: ")
    assert shown.err.count("\n") == 1
    assert words in shown.err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "model.safetensors")


@pytest.fixture
def coded(model: Path) -> Path:
    assert run(["compress", str(model), "-q"]) == 0
    return model.with_name("model.unweight.safetensors")


def test_compressing_twice(coded: Path, capsys: Capture) -> None:
    refused(["compress", str(coded)], capsys, 3, "already compressed")
    assert not coded.with_name("model.unweight.unweight.safetensors").exists()


def test_compressing_a_renamed_compressed_file(coded: Path, capsys: Capture) -> None:
    renamed = coded.rename(coded.with_name("innocent.safetensors"))
    refused(["compress", str(renamed)], capsys, 3, "already compressed")


def test_compressing_a_directory_with_a_compressed_file(coded: Path, capsys: Capture) -> None:
    target = coded.parent.with_name("out")
    line = ["compress", str(coded.parent), "-o", str(target)]
    refused(line, capsys, 3, f"{coded}: already compressed")
    assert not target.exists()


@pytest.mark.parametrize("command", ["decompress", "verify"])
def test_a_plain_file_where_a_compressed_one_belongs(
    command: str, model: Path, capsys: Capture
) -> None:
    refused([command, str(model)], capsys, 3, "not compressed")
    refused([command, str(model.parent)], capsys, 3, "not compressed")
    assert list(model.parent.iterdir()) == [model]


@pytest.mark.parametrize(
    ("source", "packed", "restored"),
    [
        ("model.bin", "model.unweight.bin", "model.bin"),
        ("MODEL.SAFETENSORS", "MODEL.unweight.SAFETENSORS", "MODEL.SAFETENSORS"),
        ("model", "model.unweight.safetensors", "model.safetensors"),
        ("a.b.c.safetensors", "a.b.c.unweight.safetensors", "a.b.c.safetensors"),
        (".safetensors", ".safetensors.unweight.safetensors", ".safetensors.safetensors"),
    ],
)
def test_the_content_counts_and_not_the_extension(
    source: str, packed: str, restored: str, model: Path
) -> None:
    original = model.read_bytes()
    path = model.rename(model.with_name(source))
    assert run(["compress", str(path), "-q"]) == 0
    path.unlink()
    assert run(["decompress", str(path.with_name(packed)), "-q"]) == 0
    assert path.with_name(restored).read_bytes() == original
    assert {entry.name for entry in path.parent.iterdir()} == {packed, restored}


@pytest.mark.parametrize("command", ["compress", "decompress", "verify", "inspect header"])
@pytest.mark.parametrize("data", [b"", b"x", b"1234567", bytes(8), bytes(9), b"\xff" * 64])
def test_a_file_too_short_or_meaningless(
    data: bytes, command: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "short.safetensors"
    path.write_bytes(data)
    refused([*command.split(), str(path)], capsys, 3, str(path))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", ["compress", "decompress", "verify"])
def test_a_fifo_is_not_waited_for(command: str, tmp_path: Path, capsys: Capture) -> None:
    os.mkfifo(tmp_path / "fifo")
    refused([command, str(tmp_path / "fifo")], capsys, 3, "not a regular file")


@pytest.mark.parametrize("command", ["compress", "decompress", "verify"])
def test_a_device(command: str, capsys: Capture) -> None:
    refused([command, os.devnull], capsys, 3, "not a regular file")


def test_a_model_without_tensors(tmp_path: Path) -> None:
    path = tmp_path / "empty.safetensors"
    path.write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    packed, restored = tmp_path / "packed", tmp_path / "restored"
    assert run(["compress", str(path), "-o", str(packed), "-q"]) == 0
    assert run(["decompress", str(packed), "-o", str(restored), "-q"]) == 0
    assert restored.read_bytes() == path.read_bytes()


NAMES = {
    "spaces": "my model  v2.safetensors",
    "a line break": "line\nbreak.safetensors",
    "a leading dash": "-model.safetensors",
    "two leading dashes": "--force.safetensors",
    "quotes": 'it\'s "quoted" $HOME `x` \\n.safetensors',
    "brackets": "[red]model[bold].safetensors",
    "an escape sequence": "\x1b[2Jmodel.safetensors",
    "other scripts": "модель-模型-🦙.safetensors",
    "bytes that are no UTF-8": os.fsdecode(b"caf\xe9-\xff\xfe.safetensors"),
    "100 characters of 4 bytes each, cut": "🦙" * 55 + ".safetensors",
    "as many bytes as possible": "m" * 234 + ".safetensors",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_names(name: str, tmp_path: Path, model: Path, cli: Cli) -> None:
    try:
        path = model.rename(tmp_path / name)
    except OSError as error:
        pytest.skip(f"no such name on this file system: {error.strerror}")
    original = path.read_bytes()
    packed = name.removesuffix(".safetensors") + ".unweight.safetensors"
    for line in (["compress", "--", name], ["decompress", "--json", "--force", "--", packed]):
        result = cli(*line, cwd=tmp_path, PYTHONIOENCODING="utf-8:backslashreplace")
        assert (result.returncode, result.stderr) == (0, "")
        assert "\x1b" not in result.stdout
    assert path.read_bytes() == original
    assert {entry.name for entry in tmp_path.iterdir()} == {name, packed}


def test_a_default_name_that_is_too_long(tmp_path: Path, model: Path, capsys: Capture) -> None:
    path = model.rename(tmp_path / ("m" * 243 + ".safetensors"))
    refused(["compress", str(path)], capsys, 6, "too long")
    assert run(["compress", str(path), "-o", str(tmp_path / ("n" * 255)), "-q"]) == 0
    assert {len(entry.name) for entry in tmp_path.iterdir()} == {255}


@pytest.mark.parametrize("name", ["caf\xe9", "模型", "\udcff"])
def test_a_locale_that_cannot_show_the_name(name: str, model: Path, cli: Cli) -> None:
    path = model.rename(model.with_name(f"{name}.safetensors"))
    result = cli("compress", path, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_directory_with_a_hard_name(model: Path, cli: Cli) -> None:
    folder = model.parent / "-d\n ir"
    folder.mkdir()
    original = model.read_bytes()
    model.rename(folder / model.name)
    for line in (
        ["compress", "--", folder.name],
        ["decompress", "-f", "--", f"{folder.name}.unweight"],
    ):
        assert cli(*line, cwd=folder.parent).returncode == 0
    assert (folder / model.name).read_bytes() == original


def test_the_current_directory(model: Path, cli: Cli) -> None:
    folder = model.parent
    result = cli("compress", ".", "-q", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    packed = folder.with_name(f"{folder.name}.unweight")
    assert [entry.name for entry in packed.iterdir()] == [model.name]
    assert cli("verify", ".", "--against", folder, "-q", cwd=packed).returncode == 0


def test_the_console_script_from_the_root(model: Path) -> None:
    script = Path(sys.executable).with_name("unweight")
    if not script.exists():
        pytest.skip("the package is not installed in this interpreter")
    original = model.read_bytes()
    relative = str(model.relative_to("/"))
    packed = relative.replace("model.", "model.unweight.")
    for line in (["compress", relative], ["verify", packed], ["decompress", packed, "--force"]):
        result = subprocess.run([script, *line, "-q"], cwd="/", capture_output=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert model.read_bytes() == original


def test_the_module_from_the_root(model: Path, cli: Cli) -> None:
    relative = str(model.relative_to("/"))
    assert cli("compress", relative, "-q", cwd=Path("/")).returncode == 0
    assert model.with_name("model.unweight.safetensors").exists()
