"""The build hook: what it compiles, and how it does without a compiler."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_COMPILER = {"PATH": "", "CC": ""}

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler"
)


class App:
    """Stands in for hatchling's application object."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)

    def abort(self, message: str) -> NoReturn:
        raise SystemExit(message)


@pytest.fixture(scope="module")
def hatch_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A source tree whose kernels are two C files that need each other."""
    sources = tmp_path / "codecs/unweight_codecs/kernels/src"
    sources.mkdir(parents=True)
    (sources / "plus.h").write_text("int plus(int a, int b);\n")
    (sources / "plus.c").write_text('#include "plus.h"\nint plus(int a, int b) { return a + b; }\n')
    (sources / "five.c").write_text(
        '#include "plus.h"\n__attribute__((visibility("default"))) int five(void)'
        " { return plus(2, 3); }\n"
    )
    return tmp_path


def run_hook(hatch_build: ModuleType, root: Path, version: str, app: App) -> dict[str, Any]:
    """Run the hook as for a wheel; the library lives only until the hook's ``finalize``."""
    build_data: dict[str, Any] = {"force_include": {}}
    hook = hatch_build.NativeKernels(str(root), {}, None, None, str(root), "wheel", app)
    hook.initialize(version, build_data)
    for library, target in build_data["force_include"].items():
        shutil.copy(library, root / Path(target).name)
    hook.finalize(version, build_data, "")
    return build_data


def library_in_tree(hatch_build: ModuleType, root: Path) -> Path:
    return Path(root, hatch_build.SOURCE_ROOT, hatch_build.KERNELS, hatch_build.LIBRARY)


def set_environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in ("CC", "UNWEIGHT_CFLAGS", "UNWEIGHT_NATIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@needs_compiler
def test_wheel_gets_a_working_library_and_leaves_the_tree_alone(
    hatch_build: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(monkeypatch)
    build_data = run_hook(hatch_build, project, "standard", App())
    assert ctypes.CDLL(str(project / hatch_build.LIBRARY)).five() == 5
    assert build_data["tag"] == f"py3-none-{hatch_build.platform_tag()}"
    assert build_data["pure_python"] is False
    assert not library_in_tree(hatch_build, project).exists()


@needs_compiler
def test_editable_install_builds_into_the_tree(
    hatch_build: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(monkeypatch)
    run_hook(hatch_build, project, "editable", App())
    library = library_in_tree(hatch_build, project)
    assert ctypes.CDLL(str(library)).five() == 5
    assert [path.name for path in library.parent.iterdir() if path.is_file()] == [library.name]


@needs_compiler
def test_only_marked_functions_are_exported(
    hatch_build: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(monkeypatch)
    run_hook(hatch_build, project, "standard", App())
    assert not hasattr(ctypes.CDLL(str(project / hatch_build.LIBRARY)), "plus")


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (NO_COMPILER, "no C compiler found"),
        ({"CC": "/nonexistent/cc"}, "'/nonexistent/cc', cannot be run"),
        pytest.param({"UNWEIGHT_CFLAGS": "-no-such-flag"}, "no-such-flag", marks=needs_compiler),
        ({"UNWEIGHT_NATIVE": "0"}, "UNWEIGHT_NATIVE=0"),
    ],
)
def test_without_kernels_the_wheel_is_pure_and_a_stale_library_goes(
    hatch_build: ModuleType,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    said: str,
) -> None:
    set_environment(monkeypatch, **variables)
    stale = library_in_tree(hatch_build, project)
    stale.write_bytes(b"built from older sources")
    app = App()
    assert run_hook(hatch_build, project, "editable", app) == {"force_include": {}}
    assert said in app.warnings[0]
    assert not stale.exists()


@pytest.mark.parametrize("variables", [NO_COMPILER, {"CC": "/nonexistent/cc"}])
def test_demanded_kernels_that_cannot_be_built_fail_the_build(
    hatch_build: ModuleType,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
) -> None:
    set_environment(monkeypatch, UNWEIGHT_NATIVE="1", **variables)
    with pytest.raises(SystemExit, match="UNWEIGHT_NATIVE=1, but the C kernels cannot be built"):
        run_hook(hatch_build, project, "standard", App())


def test_an_unknown_switch_is_refused(
    hatch_build: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(monkeypatch, UNWEIGHT_NATIVE="yes")
    with pytest.raises(SystemExit, match="UNWEIGHT_NATIVE is 'yes'"):
        run_hook(hatch_build, project, "standard", App())


@needs_compiler
def test_the_kernels_compile_without_a_warning(hatch_build: ModuleType, tmp_path: Path) -> None:
    sources = ROOT / hatch_build.SOURCE_ROOT / hatch_build.KERNELS / "src"
    environment = {**os.environ, "UNWEIGHT_CFLAGS": "-Werror", "UNWEIGHT_NATIVE": "1"}
    hatch_build.compile_library(sources, tmp_path / hatch_build.LIBRARY, environment)


def test_the_console_script_runs_from_another_directory(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("unweight")
    if not script.exists():
        pytest.skip("unweight is not installed in this environment")
    done = subprocess.run([script, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.strip()
