"""Install Unweight in every supported way, each in a fresh environment, and use it there.

Every way must give a working command from another directory, and all of them the same compressed
bytes, with C kernels or without. Needs the ``build`` package and network access for pip.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "fixtures/models/tiny-llama/model.safetensors"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to install: what pip is given, and whether the build finds a C compiler."""

    name: str
    requirement: tuple[str, ...]
    compiler: bool = True


def run(command: Sequence[str | Path], environment: dict[str, str], cwd: Path) -> str:
    """Run ``command`` and return its standard output; its whole output is shown if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd)
    if done.returncode:
        shown = " ".join(map(str, command))
        sys.exit(f"{shown} exited {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """Return the environment without what would make an installed package behave unusually."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UNWEIGHT_", "PYTHON", "VIRTUAL_ENV"))
    }


def build_distributions(folder: Path) -> tuple[Path, Path, Path]:
    """Build an sdist and a wheel into ``folder``; return both and the unpacked sdist."""
    build = (sys.executable, "-m", "build", "--sdist", "--wheel", "--outdir", folder, ROOT)
    run(build, clean_environment(), folder)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)  # noqa: S202 - made by the lines above
    return sdist, wheel, folder / sdist.name.removesuffix(".tar.gz")


def use(command: Path, folder: Path, environment: dict[str, str]) -> tuple[str, bytes]:
    """Take a model through ``command`` and back; return the kernel used and the coded bytes."""
    root = Path(folder.anchor)
    coded, restored = folder / "coded.safetensors", folder / "restored.safetensors"
    run([command, "--version"], environment, root)
    doctor = json.loads(run([command, "doctor", "--json"], environment, root))
    run([command, "compress", MODEL, "-o", coded, "--quiet"], environment, root)
    run([command, "verify", coded, "--against", MODEL, "--quiet"], environment, root)
    run([command, "decompress", coded, "-o", restored, "--quiet"], environment, root)
    if restored.read_bytes() != MODEL.read_bytes():
        sys.exit(f"{command}: the restored model differs from the original")
    return doctor["kernel"], coded.read_bytes()


def check(way: Way, folder: Path) -> tuple[str, bytes]:
    """Install one way into a new environment in the new ``folder`` and use the result."""
    folder.mkdir()
    environment = clean_environment()
    # The pip that runs this works in the new environment too, and one of its own would take most of
    # the time of making it.
    run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], environment, folder)
    if not way.compiler:
        environment.pop("CC", None)
        environment["PATH"] = os.fspath(folder / "venv/bin")
    pip = (sys.executable, "-m", "pip", "--python", folder / "venv/bin/python", "--quiet")
    run((*pip, "install", "--no-compile", *way.requirement), environment, folder)
    kernel, coded = use(folder / "venv/bin/unweight", folder, environment)
    has_compiler = way.compiler and any(map(shutil.which, ("cc", "gcc", "clang")))
    if has_compiler != (kernel != "reference"):
        sys.exit(f"{way.name}: unexpected kernel {kernel!r}")
    return kernel, coded


def main() -> None:
    """Check every way and print one line for each."""
    results: set[bytes] = set()
    with tempfile.TemporaryDirectory(prefix="unweight-install-") as name:
        folder = Path(name)
        sdist, wheel, tree = build_distributions(folder)
        ways = (
            Way("editable install", ("--editable", os.fspath(tree))),
            Way("wheel", (os.fspath(wheel),)),
            Way("sdist", (os.fspath(sdist),)),
            Way("sdist, no compiler", (os.fspath(sdist),), compiler=False),
        )
        places = [folder / str(number) for number in range(len(ways))]
        with ThreadPoolExecutor(max_workers=2) as pool:
            checks = pool.map(check, ways, places)
            for way, (kernel, coded) in zip(ways, checks, strict=True):
                print(f"{way.name:<20} ok, {kernel} kernels", flush=True)
                results.add(coded)
    if len(results) != 1:
        sys.exit("the ways of installing do not give the same compressed bytes")


if __name__ == "__main__":
    main()
