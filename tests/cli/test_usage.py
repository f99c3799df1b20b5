"""Lines that do not parse, and what the program says about itself."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.models import small_model
from unweight_cli.app import run
from unweight_cli.options import complete_preset
from unweight_codecs import __version__
from unweight_codecs.presets import PRESETS, STORED

RunCli = Callable[..., CompletedProcess[str]]

COMMANDS = (
    "compress",
    "decompress",
    "verify",
    "bench",
    "profile",
    "compare",
    "tune",
    "codecs",
    "doctor",
    "inspect",
)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("comprss", "did you mean 'compress'"),
        ("inspect headr x", "did you mean 'header'?"),
        ("--versoin", "did you mean --version?"),
        ("compress --preste fast x", "did you mean --preset"),
        ("compress", "missing argument 'PATH' (see 'unweight compress --help')"),
        ("compress one two", "unexpected extra argument"),
        ("compress . --threads -1", "'--threads'"),
        ("compress . --threads many", "'--threads'"),
        ("inspect tensors . --sort colour", "'--sort'"),
    ],
)
def test_a_line_that_does_not_parse(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("unweight: error: ")
    assert words in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "compress",
        "decompress",
        "verify",
        "bench",
        "tune",
        "compare",
        "inspect header",
        "inspect stages",
    ],
)
def test_a_path_that_is_not_there(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.safetensors"
    assert run([*line.split(), str(missing)]) == 2
    assert capsys.readouterr().err == f"unweight: error: {missing}: no such file or directory\n"


def test_an_original_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    assert run(["verify", str(tmp_path), "--against", str(missing)]) == 2
    assert str(missing) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["compress", ""], "a path is empty"),
        (["verify", "model", "--against", ""], "a path is empty"),
        (["compress", "model", "--recipe", ""], "a path is empty"),
        (["compress", "model", "-o", ""], "a path is empty"),
        (["compress", "model", "-o", "-"], "cannot go to stdout"),
        (["decompress", "model", "--output=-"], "cannot go to stdout"),
    ],
)
def test_paths_that_are_none(
    line: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "model").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert run(line) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("view", ["header", "tensors", "stages"])
def test_inspect_of_a_directory_names_a_file(
    view: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", view, str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"unweight: error: {tmp_path}: is a directory (name a model file)\n"
    )
    for name in ("config.json", "b.safetensors", "a.gguf"):
        (tmp_path / name).write_bytes(b"")
    assert run(["inspect", view, str(tmp_path)]) == 2
    assert f"(name a file inside it, like {tmp_path / 'a.gguf'})" in capsys.readouterr().err


def test_a_link_to_nothing_is_called_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "model.safetensors"
    link.symlink_to(tmp_path / "gone")
    assert run(["compress", str(link)]) == 2
    assert "a link to nothing" in capsys.readouterr().err


def test_errors_of_parsing_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compress", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "UsageError"
    assert error["exit_code"] == 2


def test_json_behind_the_end_of_options_is_a_file_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["compress", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert f"\n  {command} " in capsys.readouterr().out


@pytest.mark.parametrize("line", [*COMMANDS[:-1], *(f"inspect {x}" for x in ("header", "stages"))])
def test_help_of_a_command_has_examples(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*line.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert f"    unweight {line}" in shown
    assert "--json" in shown


def test_the_help_and_the_completion_know_every_preset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["compress", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in (*PRESETS, STORED):
        assert re.search(rf"\b{name}\b", shown)
        assert complete_preset(name[:2]) == [name]
    assert run(["compress", str(Path(__file__)), "--preset", "tiny"]) == 2
    assert "(presets: fast, default, max, stored)" in capsys.readouterr().err


def test_the_preset_stored_codes_nothing_but_what_a_recipe_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_model(tmp_path / "model.safetensors")
    line = ["compress", str(model), "--preset", "stored", "--json", "--force"]
    assert run(line) == 0
    rows = json.loads(capsys.readouterr().out)["files"][0]["tensors"]
    assert {row["pipeline"] for row in rows} == {"stored"}
    largest = max(rows, key=lambda row: int(row["source_bytes"]))["name"]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[[rule]]\ntensors = "{largest}"\npreset = "fast"\n')
    assert run([*line, "--recipe", str(recipe)]) == 0
    rows = json.loads(capsys.readouterr().out)["files"][0]["tensors"]
    assert [row["name"] for row in rows if row["pipeline"] == "fast"] == [largest]
    recipe.write_text('[[rule]]\ntensors = "*"\nepsilon = 0.01\n')
    assert run([*line, "--recipe", str(recipe)]) == 2
    assert "rule 1: the preset stored leaves tensors as they are" in capsys.readouterr().err


@pytest.mark.parametrize(("line", "title"), [("", "Commands:"), ("inspect", "tensors")])
def test_no_command_shows_the_help(
    line: str, title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 0
    assert title in capsys.readouterr().out


def test_version(cli: RunCli) -> None:
    done = cli("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"unweight {__version__}\n", "")


@pytest.mark.parametrize("line", ["--version", "--help"])
def test_what_starts_at_once_loads_nothing_heavy(line: str, cli: RunCli) -> None:
    script = (
        "import sys\nfrom unweight_cli.app import run\ncode = run(sys.argv[1:])\n"
        "print(sorted({'numpy', 'rich', 'unweight_codecs.registry'} & set(sys.modules)))"
    )
    assert cli(*line.split(), script=script).stdout.endswith("\n[]\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_installed(shell: str, cli: RunCli, tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "SHELL": f"/bin/{shell}"}
    variables["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    done = cli("--show-completion", shell, **variables)
    assert done.returncode == 0
    assert "_UNWEIGHT_COMPLETE" in done.stdout
    done = cli("--install-completion", shell, **variables)
    assert done.returncode == 0
    assert any("unweight" in path.name for path in tmp_path.rglob("*"))


def test_completion_knows_commands_and_presets(cli: RunCli) -> None:
    def complete(line: str) -> list[str]:
        words = str(len(line.split(" ")) - 1)
        variables = {"_UNWEIGHT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": words}
        return cli(**variables).stdout.split()

    assert complete("unweight compr") == ["compress"]
    assert complete("unweight compress --preset m") == ["max"]


@pytest.mark.parametrize("setting", ["grid=nope", "grid=pack"])
def test_a_stage_that_does_not_fit_lists_those_that_do(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_model(tmp_path / "model.safetensors")
    assert run(["compress", str(model), "--stage", setting]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"unweight: error: '{setting}': ")
    assert "the file" not in error
    assert error.endswith("(codecs for grid: histogram_grid, level_grid)\n")
    assert [path.name for path in tmp_path.iterdir()] == [model.name]
