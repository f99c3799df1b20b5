"""Damaged files are reported for what is wrong with them, and nothing is written."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.golden_folder import SUMS, VERSION, GoldenFolder
from fixtures.make_corrupt import BASE, CORRUPT, DAMAGES, EXPECTED, add_missing
from fixtures.make_golden import GOLDEN, LOSSLESS
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs import errors

VERSIONS = sorted(path.parent for path in CORRUPT.glob(f"*/{EXPECTED}"))
EXPECTATIONS = {
    folder / name: expected
    for folder in VERSIONS
    for name, expected in json.loads((folder / EXPECTED).read_text()).items()
}

damaged = pytest.mark.parametrize(
    "path", EXPECTATIONS, ids=lambda path: f"{path.parent.name}-{path.stem}"
)


def check(path: Path, operation: Callable[[], object]) -> None:
    expected = EXPECTATIONS[path]
    with pytest.raises(errors.UnweightError) as refusal:
        operation()
    assert type(refusal.value) is getattr(errors, expected["error"])
    assert refusal.value.exit_code == expected["exit_code"]
    assert expected["says"] in str(refusal.value)
    assert str(path) in refusal.value.message


@damaged
def test_decompressing(each_kernel: str, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    check(path, lambda: decompress(path, target, threads=1, force=False, progress=NoProgress()))
    assert list(tmp_path.iterdir()) == []


@damaged
def test_verifying(path: Path) -> None:
    check(path, lambda: verify(path, None, threads=2, progress=NoProgress()))


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_every_file_is_listed_unchanged_and_has_an_expectation(folder: Path) -> None:
    files = {path for path in folder.iterdir() if path.name not in (SUMS, EXPECTED)}
    assert {path for path in EXPECTATIONS if path.parent == folder} == files
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert GoldenFolder(folder).digests() == digests


def test_there_are_files_of_this_version() -> None:
    assert CORRUPT / VERSION in VERSIONS


def test_adding_damage_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / VERSION
    base = (GOLDEN / VERSION / LOSSLESS / BASE).read_bytes()
    assert len(add_missing(folder, base)) == len(DAMAGES)
    (folder / "magic.safetensors").unlink()
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    (folder / SUMS).write_text("".join(line for line in lines if "magic" not in line))
    before = {path: path.read_bytes() for path in folder.iterdir() if path.name != SUMS}
    assert add_missing(folder, base + b"another file") == [folder / "magic.safetensors"]
    assert all(path.read_bytes() == content for path, content in before.items())
    assert add_missing(folder, base) == []
