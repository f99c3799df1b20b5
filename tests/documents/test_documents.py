"""The documents speak of what is there: files, commands, options, modules, exit codes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from unweight.recipe import load_recipe
from unweight_cli.app import app
from unweight_codecs import errors
from unweight_codecs.errors import UnweightError

ROOT = Path(__file__).resolve().parents[2]
CODECS = ROOT / "codecs/unweight_codecs"
PACKAGES = {"unweight": ROOT / "codecs/unweight", "unweight_codecs": CODECS}
SOURCE_ROOTS = (ROOT, ROOT / "codecs", *PACKAGES.values(), ROOT / "docs")
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(CODECS / "specs").glob("*.md")]
)
CLI = typer.main.get_command(app)
ROOT_COMMAND = "unweight"


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=names(DOCUMENTS))


def code_lines(text: str) -> Iterator[str]:
    """Yield what a document sets as code: lines of blocks, and spans within a line."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip().removeprefix("$ ")
        else:
            yield from re.findall(r"`([^`]+)`", line)


def prose(text: str) -> str:
    """Return a document without its code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))


def anchors(document: Path) -> set[str]:
    """Return the anchors that a code forge gives the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_expected_documents_are_there() -> None:
    expected = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/architecture.md"}
    assert expected <= set(names(DOCUMENTS))


@each_document
def test_links_resolve(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document.read_text(encoding="utf-8"))):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), f"{target}: no such file"
        assert linked.is_relative_to(ROOT), f"{target}: outside the project"
        if anchor:
            assert anchor in anchors(linked), f"{target}: no such heading"


def options_of(command: object) -> set[str]:
    parameters = getattr(command, "params", ())
    help_names = set(getattr(command, "context_settings", {}).get("help_option_names", ()))
    return {option for parameter in parameters for option in parameter.opts} | help_names


def every_command(command: object = CLI) -> Iterator[object]:
    yield command
    for child in getattr(command, "commands", {}).values():
        yield from every_command(child)


def check_command_line(line: str) -> None:
    """Fail unless the command and every option of a shell line exist."""
    words = shlex.split(re.split(r"[|>]|&&", line)[0], comments=True)
    command: object = CLI
    allowed = options_of(CLI) & {"--help", "-h"}
    for position, word in enumerate(words[1:], start=1):
        children = getattr(command, "commands", None)
        if word.startswith("-"):
            assert word in options_of(command) | allowed, f"{line}: no option {word}"
        elif children is not None and not word.isupper():
            assert word in children, f"{line}: no command {' '.join(words[: position + 1])}"
            command = children[word]


@each_document
def test_commands_and_options_exist(document: Path) -> None:
    every_option = {option for command in every_command() for option in options_of(command)}
    for code in code_lines(document.read_text(encoding="utf-8")):
        if code.startswith(f"{ROOT_COMMAND} ") and not code.startswith(f"{ROOT_COMMAND} 0."):
            check_command_line(code)
        elif code.startswith("--"):
            option = re.split(r"[ =]", code)[0]
            assert option in every_option, f"{code}: no such option"


def test_a_wrong_mention_would_be_noticed() -> None:
    check_command_line("unweight inspect tensors FILE --limit 0 | head")
    with pytest.raises(AssertionError):
        check_command_line("unweight inspect everything FILE")
    with pytest.raises(AssertionError):
        check_command_line("unweight compress FILE --limit 0")


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    for name, command in CLI.commands.items():  # type: ignore[attr-defined]
        for child in getattr(command, "commands", None) or ("",):
            assert f"`{' '.join((name, child)).strip()}" in text


@each_document
def test_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.M))
    for code in code_lines(document.read_text(encoding="utf-8")):
        if code.startswith("make "):
            for word in re.split(r"\s{2,}|#", code)[0].split()[1:]:
                assert "=" in word or word in targets, f"{code}: no target {word}"


def test_modules_of_the_architecture_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    mentioned = set(re.findall(r"`([\w./]+(?:\.py|\.md|\.toml|/))`", text))
    assert len(mentioned) > 20
    for path in mentioned:
        assert any((root / path).exists() for root in SOURCE_ROOTS), f"{path} is not there"
    diagram = re.search(r"^```mermaid\n(.*?)^```$", text, flags=re.S | re.M)
    assert diagram
    for package, folder in PACKAGES.items():
        part = diagram[1].split(f'["{package}"]')[1].split("subgraph")[0]
        nodes = re.findall(r"^ +(\w+)\[\"(\w+)", part, flags=re.M)
        assert len(nodes) > 5
        for node, label in nodes:
            assert node == label
            assert (folder / node).is_dir() or (folder / f"{node}.py").is_file()


def test_exit_codes_are_those_of_the_errors() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type)]
    expected = {c.exit_code: c.__name__ for c in classes if issubclass(c, UnweightError)}
    readme = table_rows((ROOT / "README.md").read_text(encoding="utf-8"))
    documented = {int(row[0]): row[2].strip("`") for row in readme if row[0].isdigit()}
    assert documented == expected | {0: "", 130: ""}
    table = table_rows((ROOT / "docs/cli.md").read_text(encoding="utf-8"))
    assert {int(row[0]) for row in table if row[0].isdigit()} == set(documented)


def test_recipes_of_the_readme_load(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```$", text, flags=re.S | re.M)
    assert examples
    for example in examples:
        path = tmp_path / "recipe.toml"
        path.write_text(example, encoding="utf-8")
        assert len(load_recipe("default", path, ()).rules) == example.count("[[rule]]") + 1


def test_the_benchmark_has_its_place() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("<!-- benchmark:begin -->") == text.count("<!-- benchmark:end -->") == 1
    assert text.index("<!-- benchmark:begin -->") < text.index("<!-- benchmark:end -->")
