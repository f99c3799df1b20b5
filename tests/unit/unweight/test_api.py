"""The library as a program sees it: what is exported, what it takes, returns and raises."""

import ast
import doctest
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path
from types import ModuleType

import pytest
import typer

import unweight
from tests.support.models import small_model
from unweight import evaluation
from unweight_cli.app import app
from unweight_cli.terminal.spelling import option_of
from unweight_codecs.errors import Parameter
from unweight_codecs.presets import PRESETS

ROOT = Path(__file__).parents[3]
PACKAGES = (unweight, evaluation)
each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "model.safetensors")


# ---- What is exported


@each_package
def test_every_exported_name_is_there(package: ModuleType) -> None:
    assert package.__all__ == sorted(package.__all__)
    assert dir(package) == package.__all__
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        value = getattr(package, name)
        assert value is getattr(package, name), f"{name} is another thing the second time"
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{name} has no documentation"


@each_package
def test_names_that_are_not_there(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compres'"):
        package.compres  # noqa: B018 - reading it is the test


@each_package
def test_type_checkers_are_told_the_same(package: ModuleType) -> None:
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    told: dict[str, tuple[str, str]] = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            told[alias.asname or alias.name] = str(statement.module), alias.name
    assert set(told) | {"__version__"} >= set(package.__all__)
    assert set(told) <= set(package.__all__)
    for name, (module, original) in told.items():
        if name != "evaluation":
            assert getattr(package, name) is getattr(importlib.import_module(module), original)


def test_importing_the_library_loads_nothing() -> None:
    heavy = {
        "numpy",
        "torch",
        "rich",
        "typer",
        "zstandard",
        "unweight.evaluation",
        "importlib.metadata",
    }
    script = f"import sys, unweight; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_evaluation_does_without_torch_until_it_is_used() -> None:
    script = (
        "import sys, unweight\n"
        "for name in unweight.evaluation.__all__: getattr(unweight.evaluation, name)\n"
        "unweight.compress\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_examples_of_the_package_run() -> None:
    """In its own text, and wherever something that it offers is written."""
    exported = [getattr(unweight, name) for name in unweight.__all__]
    homes = {getattr(value, "__module__", unweight.__name__) for value in exported}
    assert "unweight.files" in homes
    found = [doctest.testmod(importlib.import_module(name)) for name in homes | {"unweight"}]
    assert sum(result.attempted for result in found) > 10
    assert not any(result.failed for result in found)


def test_the_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.S | re.M)
    shutil.copy(ROOT / "fixtures/models/tiny-llama/model.safetensors", tmp_path)
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(example, found)  # noqa: S102 - it is ours
    assert capsys.readouterr().out.startswith("model.unweight.safetensors ")
    assert {"first", "weights"} <= found.keys()


# ---- What it takes

# Options of a command that are of the terminal, and arguments that no option has.
TERMINAL = {"--quiet", "--json", "--debug", "--help"}
COMMANDS: dict[str, tuple[Callable[..., object], ...]] = {
    "compress": (unweight.compress,),
    "decompress": (unweight.decompress,),
    "verify": (unweight.verify, evaluation.check_perplexity),
    "bench": (unweight.bench,),
    "profile": (evaluation.profile,),
    "compare": (evaluation.compare_methods,),
}
# What a program calls instead, or decides itself: whether to measure, and what to draw.
INSTEAD = {"verify": {"--perplexity"}, "compare": {"--plot", "--force"}}


@pytest.mark.parametrize("command", COMMANDS)
def test_functions_take_what_commands_take(command: str) -> None:
    known = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    options = {
        max((name for name in parameter.opts if name.startswith("--")), key=len, default="PATH")
        for parameter in known.params
    }
    taken = {
        {"-o": "--output", "--perplexity": "--no-perplexity"}.get(option, option)
        for function in COMMANDS[command]
        for name in inspect.signature(function).parameters
        for option in (option_of(Parameter(name)),)
    } - {"--progress", "--note", "--path"}
    assert taken == options - TERMINAL - INSTEAD.get(command, set()) - {"PATH"}


@pytest.mark.parametrize("command", COMMANDS)
def test_defaults_are_those_of_the_commands(command: str) -> None:
    known = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    by_option = {name: parameter for parameter in known.params for name in parameter.opts}
    compared = 0
    for function in COMMANDS[command]:
        for parameter in inspect.signature(function).parameters.values():
            option = by_option.get(option_of(Parameter(parameter.name)))
            default = getattr(option, "default", None)
            if isinstance(parameter.default, int | str) and default not in (None, False):
                assert str(default) == str(parameter.default), parameter.name
                compared += 1
    assert compared or command in ("verify", "compare")


@pytest.mark.parametrize("as_text", [True, False])
def test_a_round_trip(model: Path, as_text: bool) -> None:
    kind: Callable[[Path], str | Path] = str if as_text else Path
    report = unweight.compress(kind(model), preset="fast", threads=1)
    assert report.target == str(model.with_name("model.unweight.safetensors"))
    assert (report.checked, report.exact) == (unweight.CheckKind.WRITTEN, True)
    verified = unweight.verify(kind(Path(report.target)), kind(model), threads=1)
    assert (verified.checked, verified.exact) == (unweight.CheckKind.ORIGINAL, True)
    restored = unweight.decompress(report.target, kind(model.with_name("again")))
    assert (restored.checked, restored.exact) == (unweight.CheckKind.DIGESTS, True)
    assert model.with_name("again").read_bytes() == model.read_bytes()
    header = unweight.inspect(kind(Path(report.target)))
    assert header.source_sha256 == report.files[0].source_sha256
    largest = max(report.files[0].tensors, key=lambda tensor: tensor.source_bytes)
    assert unweight.inspect_tensor(report.target).tensor.name == largest.name
    assert unweight.inspect_tensor(report.target, largest.name).tensor.coded_bytes


def test_stages_are_text_or_settings(model: Path) -> None:
    setting = unweight.StageSetting("grid", {"tables": 1, "mantissa_bits": 1})
    assert unweight.StageSetting.parse(str(setting)) == setting
    results = [
        unweight.compress(model, stages=[stage], force=True).files[0].target_bytes
        for stage in (setting, str(setting))
    ]
    assert results[0] == results[1]
    assert unweight.inspect(model.with_name("model.unweight.safetensors")).pipelines


def test_an_error_bound(model: Path) -> None:
    report = unweight.compress(model, epsilon=0.01)
    assert not report.exact
    assert 0 < report.worst_error <= report.max_epsilon == 0.01
    assert report.bounded_tensors == sum(bool(t.epsilon) for t in report.files[0].tensors)
    assert (report.search, report.sensitivity) == (None, None)
    assert not {"search", "sensitivity"} & set(report.to_dict())


def test_bench_measures_what_is_asked_for(model: Path) -> None:
    report = unweight.bench(model, presets=["fast"], repeats=1)
    assert [row.preset for row in report.rows] == ["fast"]
    assert set(PRESETS) == {row.preset for row in unweight.bench(model, repeats=1).rows}


class Recorder:
    """Progress that is only counted."""

    def __init__(self) -> None:
        self.total = self.done = self.finished = 0

    def begin(self, title: str, total: int) -> None:
        self.total += total

    def advance(self, nbytes: int) -> None:
        self.done += nbytes

    def finish(self) -> None:
        self.finished += 1


def test_progress_reaches_its_total(model: Path) -> None:
    recorder = Recorder()
    unweight.compress(model, progress=recorder)
    assert recorder.total == recorder.done == model.stat().st_size
    assert recorder.finished == 1


# ---- What it returns


@each_package
def test_results_are_frozen(package: ModuleType) -> None:
    reports = [getattr(package, name) for name in package.__all__]
    classes = [value for value in reports if inspect.isclass(value) and is_dataclass(value)]
    assert len(classes) > 3
    for found in classes:
        assert found.__dataclass_params__.frozen, found  # type: ignore[attr-defined]


def test_a_result_cannot_be_changed(model: Path) -> None:
    report = unweight.compress(model)
    assert {field.name for field in fields(report)} > {"source_bytes", "exact"}
    with pytest.raises(FrozenInstanceError):
        report.exact = False  # type: ignore[misc]
