"""Libraries are made once, by one process, and made again when they are damaged."""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.gpu.simulator import compiler, library_cache
from tests.gpu.simulator.library_cache import kept
from tests.gpu.support.devices import Simulator


class Maker:
    """Makes libraries, and counts them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        time.sleep(0.01)  # so that others come meanwhile
        self.made += 1
        return b"\x7fELF" + bytes(5000)


def test_a_library_is_made_once(tmp_path: Path) -> None:
    maker = Maker()
    library = kept(tmp_path, "a", maker)
    assert library.read_bytes().startswith(maker())
    assert kept(tmp_path, "a", maker) == library
    assert kept(tmp_path, "b", maker) != library
    assert maker.made == 3  # of which one was asked for above
    assert not list(tmp_path.glob(".*"))  # nothing unfinished


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "longer"])
def test_a_damaged_library_is_made_again(tmp_path: Path, damage: str) -> None:
    maker = Maker()
    library = kept(tmp_path, "a", maker)
    whole = library.read_bytes()
    library.write_bytes(
        {
            "cut": whole[:3000],
            "empty": b"",
            "changed": whole[:9] + b"x" + whole[10:],
            "longer": whole + b"x",
        }[damage]
    )
    assert kept(tmp_path, "a", maker).read_bytes() == whole
    assert maker.made == 2


def test_others_wait_for_the_one_that_makes_it(tmp_path: Path) -> None:
    maker, found = Maker(), list[Path]()
    threads = [
        threading.Thread(target=lambda: found.append(kept(tmp_path, "a", maker))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "a.so"] * 8
    assert maker.made == 1


def test_what_nobody_asks_for_is_forgotten(tmp_path: Path) -> None:
    maker = Maker()
    old, used = kept(tmp_path, "old", maker), kept(tmp_path, "used", maker)
    for library in (old, used):
        os.utime(library, (0, 0))
    kept(tmp_path, "used", maker)
    kept(tmp_path, "new", maker)
    assert not old.exists()
    assert used.exists()
    assert maker.made == 3


def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = library_cache.user_folder()
    assert folder is not None
    assert folder.is_relative_to(tmp_path)
    folder.chmod(0o777)
    assert library_cache.user_folder() is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    assert library_cache.user_folder() is None


def test_a_library_depends_on_all_that_it_is_made_from(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "_compiled", lambda program, unit: unit.encode())

    def library(source: str, options: Sequence[str] = ()) -> Path:
        return compiler.build(source, "kernel.cu", options, tmp_path)

    source = 'extern "C" __global__ void nothing() {}'
    first = library(source, ("-DUNUSED",))
    assert library(source, ("--std=c++17", "--fmad=false")) == first
    others = [library(source + "\n__device__ int more() { return MORE; }", ("-DMORE=1",))]
    others.append(library(source + "\n__device__ int more() { return MORE; }", ("-DMORE=2",)))
    monkeypatch.setattr(compiler, "COMPILE_OPTIONS", (*compiler.COMPILE_OPTIONS, "-O2"))
    others.append(library(source))
    assert len({first, *others}) == 4
