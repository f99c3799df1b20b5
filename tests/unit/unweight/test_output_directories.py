"""A directory appears whole or not at all, and never in place of one that must stay."""

import os
import re
import shutil
from pathlib import Path, PurePosixPath

import pytest

from tests.support.folders import entries
from unweight.output import (
    TEMPORARY_MARK,
    atomic_directory,
    check_replaceable,
    copy_file,
    is_leftover,
)
from unweight_codecs.errors import IntegrityError, ResourceError, UsageError


def fail_in_directory(target: Path, error: BaseException) -> None:
    with atomic_directory(target, 0, force=True) as folder:
        (folder / "half").write_bytes(b"half")
        raise error


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
