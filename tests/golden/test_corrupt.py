"""Damaged files are reported for what is wrong with them, and nothing is written."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs import errors

FOLDER = Path(__file__).parents[2] / "fixtures" / "corrupt"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())

damaged = pytest.mark.parametrize("name", EXPECTED)


def check(name: str, operation: Callable[[], object]) -> None:
    expected = EXPECTED[name]
    with pytest.raises(errors.UnweightError) as refusal:
        operation()
    assert type(refusal.value) is getattr(errors, expected["error"])
    assert refusal.value.exit_code == expected["exit_code"]
    assert expected["says"] in str(refusal.value)
    assert str(FOLDER / name) in refusal.value.message


@damaged
def test_decompressing(each_kernel: str, name: str, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    check(
        name,
        lambda: decompress(FOLDER / name, target, threads=1, force=False, progress=NoProgress()),
    )
    assert list(tmp_path.iterdir()) == []


@damaged
def test_verifying(name: str) -> None:
    check(name, lambda: verify(FOLDER / name, None, threads=2, progress=NoProgress()))


def test_every_file_has_an_expectation() -> None:
    files = {path.name for path in FOLDER.iterdir()} - {"expected.json"}
    assert files == set(EXPECTED)
