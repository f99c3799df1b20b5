"""Sensitivity files: what is read of them, and how everything that is wrong is named."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unweight.evaluation.sensitivity.allocation import ProfiledTensor
from unweight.evaluation.sensitivity.sensitivity_file import MAX_BYTES, read_sensitivity
from unweight_codecs.errors import FormatError

SHA256 = "0123456789abcdef" * 4
Change = Callable[[dict[str, Any]], object]


def document() -> dict[str, Any]:
    row = {"name": "w", "parameters": 4, "mean_square": 0.5, "mean_squared_gradient": 2.0}
    row |= {"shape": [2, 2]}
    vector = row | {"name": "norm", "shape": [4]}
    return {
        "format": "unweight.sensitivity",
        "version": 1,
        "models": {"model.safetensors": SHA256},
        "tensors": [row, vector],
    }


def test_matrices_of_what_profile_writes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sensitivity.json"
    path.write_text(json.dumps(document() | {"later": "ignored"}))
    found = read_sensitivity(path)
    assert found.path == path
    assert found.models == {"model.safetensors": SHA256}
    assert found.tensors == (ProfiledTensor("w", 4, 0.5, 2.0),)


def setting(key: str, value: object, row: bool = True) -> Change:
    return lambda found: (found["tensors"][0] if row else found).__setitem__(key, value)


def lacking(key: str, row: bool = True) -> Change:
    return lambda found: (found["tensors"][0] if row else found).pop(key)


WRONG: dict[str, tuple[Change, str]] = {
    "no format": (lacking("format", row=False), "format is missing, which must be text"),
    "another format": (
        setting("format", "gguf", row=False),
        'format must be "unweight.sensitivity", not "gguf"',
    ),
    "format of a number": (setting("format", 1, row=False), "format must be text, not 1"),
    "no version": (lacking("version", row=False), "version is missing"),
    "a newer version": (setting("version", 2, row=False), "version must be 1, not 2"),
    "no models": (lacking("models", row=False), "models is missing, which must be an object of"),
    "models of nothing": (setting("models", {}, row=False), "models must be an object of SHA-256"),
    "models as a list": (setting("models", [SHA256], row=False), "models must be an object"),
    "a digest cut short": (setting("models", {"m": SHA256[1:]}, row=False), "models must be"),
    "a digest of a number": (setting("models", {"m": 5}, row=False), "models must be"),
    "no tensors": (lacking("tensors", row=False), "tensors is missing, which must be a list"),
    "tensors as an object": (setting("tensors", {}, row=False), "tensors must be a list, not {}"),
    "a tensor of text": (setting("tensors", ["w"], row=False), "tensors[0] must be an object"),
    "a tensor without a shape": (lacking("shape"), "tensors[0].shape is missing"),
    "a long value": (setting("name", [1] * 100), "1, 1… (300 characters)"),
    "a shape of a number": (setting("shape", 4), "tensors[0].shape must be a list of whole"),
    "a negative shape": (setting("shape", [-2, -2]), "tensors[0].shape must be a list of whole"),
    "a tensor without a name": (lacking("name"), "tensors[0].name is missing"),
    "a name of null": (setting("name", None), "tensors[0].name must be text, not null"),
    "parameters in words": (setting("parameters", "many"), "parameters must be a whole number"),
    "parameters that are true": (setting("parameters", True), "parameters must be a whole number"),
    "other parameters": (setting("parameters", 5), "must be 4, the product of its shape, not 5"),
    "no mean square": (lacking("mean_square"), "mean_square is missing, which must be a number"),
    "a negative mean square": (setting("mean_square", -1), "must be a number from 0 up, not -1"),
    "a mean square in quotes": (setting("mean_square", "1"), "must be a number from 0 up"),
    "a gradient of null": (
        setting("mean_squared_gradient", None),
        "tensors[0].mean_squared_gradient must be a number from 0 up",
    ),
    "an infinite gradient": (setting("mean_squared_gradient", math.inf), "not valid JSON"),
    "a gradient that is none": (setting("mean_squared_gradient", math.nan), "not valid JSON"),
    "a tensor twice": (
        lambda found: found["tensors"].append(found["tensors"][0]),
        'tensors has "w" more than once',
    ),
}


def refusal_of(path: Path) -> str:
    with pytest.raises(FormatError) as refusal:
        read_sensitivity(path)
    assert refusal.value.message.startswith(f"{path}: ")
    assert refusal.value.hint
    words = refusal.value.message.removeprefix(str(path))
    for word in ("Error", "None", "True", "object is not", "__", "argument"):
        assert word not in words
    return refusal.value.message


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(tmp_path: Path, case: str) -> None:
    change, words = WRONG[case]
    path, found = tmp_path / "sensitivity.json", document()
    change(found)
    path.write_text(json.dumps(found))
    assert words in refusal_of(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "format is missing"),
        (b'{"format": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"format": 1, "format": 2}', "duplicate key"),
    ],
)
def test_other_files(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "sensitivity.json"
    path.write_bytes(data)
    assert words in refusal_of(path)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "sensitivity.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert "too large" in refusal_of(path)
