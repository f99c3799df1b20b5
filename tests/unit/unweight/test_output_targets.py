"""What output may be called and may replace is checked before anything is written."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from unweight.output import check_space, check_target
from unweight_codecs.errors import ResourceError, UsageError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(b"data")
    return path


def test_space_is_checked_before(tmp_path: Path) -> None:
    check_space(tmp_path / "out", 1)
    with pytest.raises(ResourceError, match=f"{1 << 62} bytes needed"):
        check_space(tmp_path / "out", 1 << 62)


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
