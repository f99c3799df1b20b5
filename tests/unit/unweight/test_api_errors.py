"""Errors name the parameters of functions; only the command line speaks of options."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import unweight
from tests.support.models import small_model
from unweight import evaluation
from unweight_cli.app import app
from unweight_cli.terminal.spelling import as_options, option_of
from unweight_codecs.errors import Parameter, Phrase, UsageError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("arguments", "parameter", "words"),
    [
        ({"threads": 300}, "threads", "threads must be 0 to 256, not 300"),
        ({"epsilon": 2}, "epsilon", "epsilon must be a number from 0 to 1, not 2"),
        ({"epsilon": "much"}, "epsilon", "epsilon must be a number or auto, not 'much'"),
        ({"epsilon": "auto"}, "max_ppl_delta", "max_ppl_delta is missing with epsilon='auto'"),
        (
            {"epsilon": "auto", "max_ppl_delta": 0},
            "max_ppl_delta",
            "max_ppl_delta must be a number above 0, not 0",
        ),
        (
            {"text": "a", "windows": 1},
            "text",
            "text, windows: has no effect without epsilon='auto'",
        ),
        ({"sensitivity": "a"}, "sensitivity", "sensitivity: has no effect without epsilon"),
        ({"output": ""}, "output", "output must be a path, not empty"),
        ({"output": "a\0b"}, "output", "output must be a path, without a zero byte"),
        ({"output": b"a"}, "output", "output must be a path, not b'a'"),
        ({"output": 3}, "output", "output must be a path, not 3"),
        ({"recipe": ["a"]}, "recipe", "recipe must be a path, not ['a']"),
        ({"path": None}, "path", "path must be a path, not None"),
        ({"threads": "4"}, "threads", "threads must be 0 to 256, not '4'"),
        ({"threads": 1.5}, "threads", "threads must be 0 to 256, not 1.5"),
        ({"preset": "stored", "epsilon": 0.1}, "epsilon", "epsilon has no effect with the preset"),
    ],
)
def test_errors_name_the_parameter(
    model: Path, arguments: dict[str, object], parameter: str, words: str
) -> None:
    before = sorted(model.parent.iterdir())
    with pytest.raises(unweight.UsageError) as refusal:
        unweight.compress(**{"path": model, **arguments})  # type: ignore[arg-type]
    assert refusal.value.parameter == parameter
    assert refusal.value.message.startswith(words)
    assert "--" not in str(refusal.value)
    assert as_options(refusal.value.message).startswith(option_of(Parameter(parameter)))
    assert sorted(model.parent.iterdir()) == before


def test_hints_name_arguments_and_the_command_line_spells_options(model: Path) -> None:
    unweight.compress(model)
    with pytest.raises(unweight.UsageError) as refusal:
        unweight.compress(model)
    assert refusal.value.hint == "force=True replaces it"
    assert as_options(refusal.value.hint) == "--force replaces it"
    with pytest.raises(unweight.UsageError) as refusal:
        unweight.compress(model, model)
    assert refusal.value.hint == "choose another output"
    assert as_options(refusal.value.hint) == "choose another -o"


def test_a_codec_that_there_is_not(model: Path) -> None:
    with pytest.raises(unweight.UsageError) as refusal:
        unweight.compress(model, stages=["grid=nope"])
    assert "there is no codec 'nope'" in refusal.value.message
    assert "the file" not in refusal.value.message
    names = [codec.name for codec in unweight.list_codecs() if codec.slot == "grid"]
    assert refusal.value.hint == f"codecs for grid: {', '.join(names)}"


def test_the_extra_is_named_where_it_is_missing(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unweight.evaluation.extra.PACKAGES", ("a_package_that_is_not_there",))
    (model.parent / "config.json").write_text("{}")
    for function in (
        lambda: evaluation.check_perplexity(model),
        lambda: evaluation.search_epsilon(model, max_ppl_delta=1.0),
        lambda: evaluation.compare_methods(model),
        lambda: unweight.compress(model, epsilon="auto", max_ppl_delta=1.0),
        lambda: evaluation.profile(model, __file__, model.with_name("sensitivity.json")),
    ):
        with pytest.raises(unweight.ResourceError, match="a_package_that_is_not_there") as refusal:
            function()
        assert "unweight[eval]" in refusal.value.hint


def test_a_phrase_is_a_text_with_parts() -> None:
    phrase = Phrase("try ", Parameter("device", "cpu"), " or ", Parameter("perplexity", False))
    assert phrase == "try device='cpu' or perplexity=False"
    assert as_options(phrase) == "try --device cpu or --no-perplexity"
    assert as_options("device='cpu'") == "device='cpu'"  # not in a text that merely looks like it
    error = UsageError("must be text", parameter="stages")
    assert (str(error), as_options(error.message)) == (
        "stages must be text",
        "--stage must be text",
    )
    assert UsageError("stages must be text").parameter == ""


def test_every_error_of_a_parameter_is_about_an_option_there_is() -> None:
    command = typer.main.get_command(app)
    known = {
        option
        for child in command.commands.values()  # type: ignore[attr-defined]
        for parameter in child.params
        for option in parameter.opts
    }
    only_here = {"path", "framework"}
    named = set(parameters_named())
    assert len(named) > 10
    assert {option_of(Parameter(name)) for name in named - only_here} <= known


def parameters_named() -> Iterator[str]:
    """Yield the names of parameters that errors in the library speak of."""
    for path in library_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            named = [word.value for word in node.keywords if word.arg == "parameter"]
            if isinstance(node.func, ast.Name) and node.func.id == "Parameter":
                named.append(node.args[0])
            for value in named:
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                    yield value.value


# ---- It does not speak command line


# For a compiler, not for a user.
OTHER_TOOLS = {"--fmad=false"}


def library_files() -> list[Path]:
    return sorted(path for folder in ("codecs", "gpu") for path in (ROOT / folder).rglob("*.py"))


def texts_of(path: Path) -> Iterator[str]:
    """Yield the string literals of a module, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            yield str(node.value)


def speaks_command_line(text: str) -> bool:
    words = text.replace("(", " ").replace("`", " ").split()
    return any(word.rstrip(".,;:)") == "-o" or re.match("--[A-Za-z]", word) for word in words)


@pytest.mark.parametrize("path", library_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_of_the_library_names_an_option(path: Path) -> None:
    found = [text for text in texts_of(path) if speaks_command_line(text)]
    assert set(found) <= OTHER_TOOLS


@pytest.mark.parametrize(
    "text", ["--force replaces it", "choose another -o", "(--threads N)", "try `--device cpu`"]
)
def test_a_text_that_names_one_would_be_noticed(text: str) -> None:
    assert speaks_command_line(text)
    assert not speaks_command_line("a - b, -- and model-o")
