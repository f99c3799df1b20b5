"""Build hook that compiles the C kernels into one shared library inside the package.

The library is loaded with ctypes, so neither Python headers nor a wheel per Python version is
needed. Without a compiler the build still succeeds, as a pure-Python wheel: the NumPy reference of
every kernel reads and writes the same files, only slower.

Environment:
    CC: the compiler command; otherwise the first of cc, gcc and clang on PATH.
    UNWEIGHT_CFLAGS: flags to append, e.g. ``-Werror``.
    UNWEIGHT_NATIVE: ``0`` skips the kernels, ``1`` makes the build fail if they cannot be built.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCE_ROOT = Path("codecs")
KERNELS = Path("unweight_codecs/kernels")
LIBRARY = "_native.dylib" if sys.platform == "darwin" else "_native.so"

# The kernels choose their instruction set at run time, so -march=native is never right here: the
# wheel must run on every processor of its platform. Floating-point contraction is off because the
# same input has to give the same bytes on every processor.
COMPILE_FLAGS = (
    *("-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"),
    *("-Wall", "-Wextra", "-Wconversion", "-Wmissing-prototypes", "-Wstrict-prototypes"),
)


class NativeBuildError(Exception):
    """The kernels cannot be compiled here; the message says why."""


def find_compiler(environment: Mapping[str, str]) -> list[str]:
    """Return the C compiler's command as words; raises NativeBuildError when there is none."""
    if chosen := shlex.split(environment.get("CC", "")):
        if not shutil.which(chosen[0], path=environment.get("PATH")):
            raise NativeBuildError(f"the C compiler named by CC, {chosen[0]!r}, cannot be run")
        return chosen
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name, path=environment.get("PATH")):
            return [name]
    raise NativeBuildError("no C compiler found (looked for cc, gcc and clang; CC names another)")


def compile_library(sources: Path, library: Path, environment: Mapping[str, str]) -> None:
    """Compile every C file of the folder ``sources`` and link them into ``library``.

    ``library`` is replaced in one step, so a process that has the old one mapped keeps it.
    Raises NativeBuildError when the kernels are not wanted or cannot be compiled.
    """
    if environment.get("UNWEIGHT_NATIVE") == "0":
        raise NativeBuildError("UNWEIGHT_NATIVE=0")
    if sys.platform == "win32":
        raise NativeBuildError("the C kernels do not support Windows yet")
    files = sorted(sources.glob("*.c"))
    if not files:
        raise NativeBuildError(f"no C sources in {sources}")
    compiler = find_compiler(environment)
    flags = [*COMPILE_FLAGS, *shlex.split(environment.get("UNWEIGHT_CFLAGS", ""))]
    with tempfile.TemporaryDirectory(prefix="unweight-native-") as folder:
        objects = [Path(folder, file.name).with_suffix(".o") for file in files]
        commands = [
            [*compiler, *flags, "-c", str(file), "-o", str(target)]
            for file, target in zip(files, objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, commands))
        partial = library.with_name(f"{library.name}.{os.getpid()}.partial")
        try:
            _run([*compiler, *flags, "-shared", *map(str, objects), "-o", str(partial), "-lm"])
            partial.replace(library)
        finally:
            partial.unlink(missing_ok=True)


def platform_tag() -> str:
    """Return the wheel platform of this machine, e.g. ``linux_x86_64``.

    Never a manylinux or musllinux one: those promise compatibility that nobody has checked.
    """
    platforms = (tag.platform for tag in sys_tags())
    return next(name for name in platforms if not name.startswith(("manylinux", "musllinux")))


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise NativeBuildError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise NativeBuildError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")


class NativeKernels(BuildHookInterface[BuilderConfig]):
    """Adds the compiled kernels to wheels, and to the source tree of editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is put together; see the module for what steers it."""
        if self.target_name != "wheel":
            return
        wanted = os.environ.get("UNWEIGHT_NATIVE", "")
        if wanted not in {"", "0", "1"}:
            self.app.abort(f"UNWEIGHT_NATIVE is {wanted!r}; it may be 0, 1 or unset")
        package = Path(self.root, SOURCE_ROOT, KERNELS)
        # Only an editable install may write to the source tree.
        self._scratch = tempfile.TemporaryDirectory(prefix="unweight-wheel-")
        library = Path(package if version == "editable" else self._scratch.name, LIBRARY)
        try:
            compile_library(package / "src", library, os.environ)
        except NativeBuildError as error:
            if wanted == "1":
                self._scratch.cleanup()
                self.app.abort(f"UNWEIGHT_NATIVE=1, but the C kernels cannot be built: {error}")
            library.unlink(missing_ok=True)  # one of older sources must not be used
            self.app.display_warning(f"Building without C kernels, NumPy only: {error}")
            return
        if version == "standard":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"
            build_data["force_include"][str(library)] = str(KERNELS / LIBRARY)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the scratch folder once the wheel is written."""
        if self.target_name == "wheel":
            self._scratch.cleanup()
