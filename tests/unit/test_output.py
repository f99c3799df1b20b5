"""Output appears whole or not at all, and never where it must not."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import pytest

from unweight_codecs.errors import IntegrityError, ResourceError, UsageError
from unweight_codecs.output import (
    TEMPORARY_MARK,
    atomic_directory,
    atomic_file,
    check_replaceable,
    check_space,
    check_target,
    copy_file,
    is_leftover,
    write_all,
)


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail_in_file(target: Path, error: BaseException) -> None:
    with atomic_file(target, 3, force=True) as file:
        file.write(b"half")
        raise error


def fail_in_directory(target: Path, error: BaseException) -> None:
    with atomic_directory(target, 0, force=True) as folder:
        (folder / "half").write_bytes(b"half")
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


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "in the last moment"])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_directory_does_not_replace_what_appeared_meanwhile(
    kind: str, checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"

    def appear() -> None:
        if kind == "directory":
            target.mkdir()
        (target / "other" if kind == "directory" else target).write_bytes(b"other")
        if not checked:
            monkeypatch.setattr(os.path, "lexists", lambda path: False)

    with pytest.raises(UsageError, match="appeared"), atomic_directory(target, 0):
        appear()
    assert entries(tmp_path) == ["out"]
    assert target.is_file() or entries(target) == ["other"]


def test_bytes_and_names_are_on_disk_before_the_directory_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, synced = os.fsync, []

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "carried").write_bytes(b"data")
    with atomic_directory(tmp_path / "out", 4) as folder:
        (folder / "sub").mkdir()
        copy_file(tmp_path / "carried", folder / "sub" / "copy")
    out = tmp_path / "out"
    assert (out / "sub" / "copy").read_bytes() == b"data"
    written = [out / "sub" / "copy", out / "sub", out, tmp_path]
    assert synced == [path.stat().st_ino for path in written]


def test_only_a_directory_of_known_files_may_be_replaced(tmp_path: Path) -> None:
    target, names = tmp_path / "out", {PurePosixPath("model"), PurePosixPath("sub/deep/config")}
    (target / "sub" / "deep").mkdir(parents=True)
    check_replaceable(target, set())
    (target / "sub" / "deep" / "config").write_bytes(b"")
    check_replaceable(target, names)
    with pytest.raises(UsageError, match=re.escape(str(target / "sub" / "deep" / "config"))):
        check_replaceable(target, {PurePosixPath("model")})
    (target / "link").symlink_to("sub", target_is_directory=True)
    with pytest.raises(UsageError, match="link: is not of this model"):
        check_replaceable(target, names)
    with pytest.raises(ResourceError, match="cannot be read"):
        check_replaceable(target / "absent", names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f".out{TEMPORARY_MARK}abcd", True),
        (f"sub/.out{TEMPORARY_MARK}abcd/model", True),
        (f"out{TEMPORARY_MARK}abcd", False),
        (".hidden", False),
    ],
)
def test_leftovers_are_known_by_name(name: str, expected: bool) -> None:
    assert is_leftover(PurePosixPath(name)) == expected


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


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_a_directory_appears_when_it_is_complete(tmp_path: Path, existing: bool) -> None:
    target = tmp_path / "out"
    if existing:
        target.mkdir()
        (target / "old").write_bytes(b"old")
    with atomic_directory(target, 0, force=existing) as folder:
        (folder / "new").write_bytes(b"new")
        assert target.exists() == existing
        assert folder.parent == tmp_path
    assert entries(target) == ["new"]
    assert entries(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [IntegrityError("x"), KeyboardInterrupt(), OSError(5, "io")])
@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_a_failed_directory_leaves_what_was_there(
    tmp_path: Path, existing: bool, error: BaseException
) -> None:
    target = tmp_path / "out"
    if existing:
        target.mkdir()
        (target / "old").write_bytes(b"old")
    expected = ResourceError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        fail_in_directory(target, error)
    assert entries(tmp_path) == (["out"] if existing else [])
    assert not existing or entries(target) == ["old"]


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


def test_space_is_checked_before(tmp_path: Path) -> None:
    check_space(tmp_path / "out", 1)
    with pytest.raises(ResourceError, match=f"{1 << 62} bytes needed"):
        check_space(tmp_path / "out", 1 << 62)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(b"data")
    return path


def test_a_new_target_and_a_forced_one(source: Path) -> None:
    target = source.with_name("target")
    check_target(source, target, force=False)
    target.write_bytes(b"old")
    with pytest.raises(UsageError, match="already exists"):
        check_target(source, target, force=False)
    check_target(source, target, force=True)


def hard_link(source: Path) -> Path:
    target = source.with_name("hard")
    target.hardlink_to(source)
    return target


def symbolic_link(source: Path) -> Path:
    target = source.with_name("soft")
    target.symlink_to(source.name)
    return target


def roundabout(source: Path) -> Path:
    (source.parent / "d").mkdir()
    return source.parent / "d" / ".." / source.name


@pytest.mark.parametrize("alias", [lambda path: path, hard_link, symbolic_link, roundabout])
def test_a_target_that_is_the_source(source: Path, alias: Callable[[Path], Path]) -> None:
    with pytest.raises(UsageError, match="overwrite its own input"):
        check_target(source, alias(source), force=True)
    assert source.read_bytes() == b"data"


def test_a_target_inside_the_source_or_around_it(tmp_path: Path) -> None:
    source = tmp_path / "a" / "model"
    source.mkdir(parents=True)
    for target in (source / "out", source / ".." / "model" / "out", tmp_path / "a"):
        with pytest.raises(UsageError, match="overwrite its own input"):
            check_target(source, target, force=True)
    check_target(source, tmp_path / "a" / "model2", force=False)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def circle(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [fifo, directory, dangling, circle])
@pytest.mark.parametrize("force", [False, True])
def test_targets_that_are_no_regular_file(
    source: Path, make: Callable[[Path], None], force: bool
) -> None:
    target = source.with_name("target")
    make(target)
    with pytest.raises((UsageError, ResourceError)) as error:
        check_target(source, target, force=force)
    assert error.value.message.startswith(f"{target}:")


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full"])
def test_devices(source: Path, device: str) -> None:
    with pytest.raises(UsageError, match="not a regular file"):
        check_target(source, Path(device), force=True)


def test_a_folder_that_does_not_exist(source: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        check_target(source, source.parent / "missing" / "target", force=False)


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


def test_an_interrupt_while_the_old_directory_is_removed_leaves_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, remove, calls = tmp_path / "out", shutil.rmtree, iter([KeyboardInterrupt])
    target.mkdir()

    def interrupted(path: Path, *, ignore_errors: bool) -> None:
        for error in calls:
            raise error
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_directory(target, 0, force=True) as folder:
        (folder / "new").touch()
    assert entries(tmp_path) == ["out"]
    assert entries(target) == ["new"]
