"""A file appears whole or not at all, and never in place of one that must stay."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.folders import entries
from unweight.output import TEMPORARY_MARK, atomic_directory, atomic_file, write_all
from unweight_codecs.errors import IntegrityError, ResourceError, UsageError


def fail_in_file(target: Path, error: BaseException) -> None:
    with atomic_file(target, 3, force=True) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("existing", [None, b"old"], ids=["new", "existing"])
def test_a_file_appears_when_it_is_complete(tmp_path: Path, existing: bytes | None) -> None:
    target = tmp_path / "out"
    if existing:
        target.write_bytes(existing)
    with atomic_file(target, 3, force=existing is not None) as file:
        file.write(b"new")
        assert (target.read_bytes() if target.exists() else None) == existing
        (temporary,) = (name for name in entries(tmp_path) if TEMPORARY_MARK in name)
        assert temporary.startswith(".out")
    assert target.read_bytes() == b"new"
    assert entries(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [IntegrityError("x"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("existing", [None, b"old"], ids=["new", "existing"])
def test_a_failure_leaves_what_was_there(
    tmp_path: Path, existing: bytes | None, error: BaseException
) -> None:
    target = tmp_path / "out"
    if existing:
        target.write_bytes(existing)
    with pytest.raises(type(error)):
        fail_in_file(target, error)
    assert entries(tmp_path) == (["out"] if existing else [])
    assert not existing or target.read_bytes() == existing


@pytest.mark.parametrize(
    ("number", "named"),
    [(errno.ENOSPC, "no space: 12345 bytes needed"), (errno.EIO, "cannot be written")],
)
def test_a_system_error_names_the_target(tmp_path: Path, number: int, named: str) -> None:
    target = tmp_path / "out"
    with pytest.raises(ResourceError, match=named) as error, atomic_file(target, 12345):
        raise OSError(number, os.strerror(number))
    assert error.value.message.startswith(f"{target}:")
    assert entries(tmp_path) == []


def test_a_bound_of_the_size_is_called_one(tmp_path: Path) -> None:
    with (
        pytest.raises(ResourceError, match="no space: up to 12345 bytes needed"),
        atomic_file(tmp_path / "out", 12345, at_most=True),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(params=[None, errno.EPERM, errno.ENOTSUP, errno.EMLINK], ids=str)
def hard_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file system have hard links, or lack them in one of the ways there are."""
    number = request.param
    if number is None:
        return

    def link(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)


@pytest.mark.usefixtures("hard_links")
def test_a_file_does_not_replace_one_that_appeared_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with atomic_file(target, 3) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new"
    assert entries(tmp_path) == ["out"]
    target.unlink()
    with pytest.raises(UsageError, match="appeared"), atomic_file(target, 0):
        target.write_bytes(b"other")
    assert target.read_bytes() == b"other"
    assert entries(tmp_path) == ["out"]


def test_another_failure_of_a_link_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(ResourceError, match="cannot be written"), atomic_file(tmp_path / "out", 0):
        pass
    assert entries(tmp_path) == []


def test_two_writers_of_one_target_do_not_mix(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with atomic_file(target, 0, force=True) as one, atomic_file(target, 0, force=True) as other:
        for part in (b"a", b"b"):
            one.write(part)
            other.write(part.upper())
    assert target.read_bytes() == b"ab"  # the one that ends last
    assert entries(tmp_path) == ["out"]


def test_an_interrupt_at_the_birth_of_a_temporary_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path, *arguments: int) -> int:
        path.write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "out", 0):
        pass
    assert entries(tmp_path) == []


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_file_gets_the_permissions_of_a_new_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with atomic_file(tmp_path / "out", 0):
            pass
        with atomic_directory(tmp_path / "folder", 0):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "-rf", "a b\n", "\udcff.bin"], ids=ascii)
def test_names_of_every_kind(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    with atomic_file(target, 1) as file:
        file.write(b"1")
    assert target.read_bytes() == b"1"
    target.unlink()
    with atomic_directory(target, 0) as folder:
        (folder / "inside").write_bytes(b"1")
    assert entries(target) == ["inside"]


class Trickle:
    """Takes a few bytes at a time, as a raw file may."""

    def __init__(self) -> None:
        self.taken = b""

    def write(self, data: memoryview) -> int:
        self.taken += bytes(data[:7])
        return min(7, len(data))


@pytest.mark.parametrize("length", [0, 1, 6, 7, 8, 1000])
def test_every_byte_is_written(length: int) -> None:
    data, file = os.urandom(length), Trickle()
    sink: BinaryIO = file  # type: ignore[assignment]
    write_all(sink, data)
    assert file.taken == data
