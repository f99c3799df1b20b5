"""GGUF models of several parts: all must be there, and their keys must say what their names say."""

import struct
from pathlib import Path, PurePosixPath

import pytest

from tests.support.gguf_files import file_of, key
from unweight.containers.directories.gguf_splits import check_splits
from unweight.containers.gguf.values import ValueType
from unweight_codecs.errors import FormatError


def part(path: Path, **keys: int) -> Path:
    """Write a file without tensors whose split keys are those given."""
    values = [
        key(f"split.{name}".encode(), ValueType.UINT16, struct.pack("<H", value))
        for name, value in keys.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_of(values))
    return path


def parts(root: Path, count: int, prefix: str = "m") -> list[Path]:
    """Write a model of several parts."""
    return [
        part(root / f"{prefix}-{k + 1:05}-of-{count:05}.gguf", no=k, count=count)
        for k in range(count)
    ]


def check(root: Path) -> None:
    check_splits(root, [PurePosixPath(path.relative_to(root)) for path in root.rglob("*.*")])


def test_whole_models(tmp_path: Path) -> None:
    parts(tmp_path, 3)
    parts(tmp_path, 2)
    parts(tmp_path, 1, "other")
    parts(tmp_path / "Q8_0", 2)
    part(tmp_path / "single.gguf", no=4, count=9)
    check(tmp_path)


def test_parts_without_keys(tmp_path: Path) -> None:
    for path in parts(tmp_path, 2):
        part(path)
    check(tmp_path)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_part(number: int, tmp_path: Path) -> None:
    missing = parts(tmp_path / "sub", 3)[number - 1]
    missing.unlink()
    with pytest.raises(FormatError, match=f"^{missing}: is missing, part {number} of 3"):
        check(tmp_path)


def test_a_part_of_very_many(tmp_path: Path) -> None:
    part(tmp_path / "m-00001-of-99999.gguf")
    with pytest.raises(FormatError, match=r"m-00002-of-99999\.gguf: is missing, part 2 of 99999"):
        check(tmp_path)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"no": 1, "count": 4}, "'split.count' is 4, .* must be 3"),
        ({"no": 2, "count": 3}, "'split.no' is 2, .* must be 1"),
        ({"count": 0}, "'split.count' is 0"),
    ],
)
def test_keys_that_disagree(keys: dict[str, int], words: str, tmp_path: Path) -> None:
    wrong = part(parts(tmp_path, 3)[1], **keys)
    with pytest.raises(FormatError, match=f"^{wrong}: key {words}"):
        check(tmp_path)


@pytest.mark.parametrize(
    "name", ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-1-of-2.gguf", "m-00001-of.gguf"]
)
def test_names_that_only_look_like_parts(name: str, tmp_path: Path) -> None:
    part(tmp_path / name)
    check(tmp_path)


def test_capitals_of_the_suffix(tmp_path: Path) -> None:
    for path in parts(tmp_path, 2):
        path.rename(path.with_suffix(".GGUF"))
    check(tmp_path)
    (tmp_path / "m-00002-of-00002.GGUF").unlink()
    with pytest.raises(FormatError, match=r"m-00002-of-00002\.GGUF: is missing"):
        check(tmp_path)
