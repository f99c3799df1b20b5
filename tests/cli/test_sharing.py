"""``compress --sensitivity``: of which model a profile is, and which tensors it knows."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.evaluation import TINY, bf16, weights_of
from tests.support.models import Tensor, write_model
from unweight_cli.app import run

Capture = pytest.CaptureFixture[str]

WEIGHTS = TINY / "model.safetensors"
QUERY, DOWN = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"
EMBEDDING = "model.embed_tokens.weight"


def profile_of(
    path: Path,
    *files: Path,
    without: tuple[str, ...] = (),
    unused: tuple[str, ...] = (),
    scale: float = 1,
) -> Path:
    """Write a sensitivity file of the tiny model in which query counts most, and down least.

    The tensors ``without`` are not in it, those ``unused`` have no gradient.
    """
    gradients = {QUERY: 100.0, DOWN: 0.01} | dict.fromkeys(unused, 0.0)
    rows = [
        {
            "name": name,
            "shape": list(weights.shape),
            "parameters": weights.size,
            "mean_square": float(np.square(weights).mean()),
            "mean_squared_gradient": scale * gradients.get(name, 1.0),
        }
        for name, weights in weights_of(WEIGHTS).items()
        if name not in without
    ]
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    document = {"format": "unweight.sensitivity", "version": 1, "models": digests, "tensors": rows}
    path.write_text(json.dumps(document))
    return path


def compressed(capsys: Capture, source: Path, profile: Path) -> dict[str, Any]:
    target = profile.with_name(f"out of {source.name}")
    line = ["compress", str(source), "-o", str(target), "--epsilon", "0.02"]
    assert run([*line, "--sensitivity", str(profile), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def refused(capsys: Capture, source: Path, profile: Path) -> str:
    target = profile.with_name("out")
    line = ["compress", str(source), "-o", str(target), "--epsilon", "0.02"]
    assert run([*line, "--sensitivity", str(profile)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert not target.exists()
    return shown.err


def total_error(rows: dict[str, dict[str, Any]]) -> float:
    """Return the relative error of all matrices together, from those of each."""
    energies = {
        name: float(np.square(weights, dtype=np.float64).sum())
        for name, weights in weights_of(WEIGHTS).items()
        if weights.ndim > 1
    }
    errors = sum(energy * rows[name]["error"] ** 2 for name, energy in energies.items())
    return float(np.sqrt(errors / sum(energies.values())))


def test_every_matrix_has_a_bound_of_its_own(tmp_path: Path, capsys: Capture) -> None:
    profile = profile_of(tmp_path / "s.json", WEIGHTS)
    document = compressed(capsys, TINY, profile)
    matrices = sum(weights.ndim > 1 for weights in weights_of(WEIGHTS).values())
    assert document["sensitivity"] == {
        "path": str(profile),
        "matrices": matrices,
        "missing": [],
        "without_gradient": [],
    }
    bounds = {row["name"]: row["epsilon"] for row in document["files"][0]["tensors"]}
    assert bounds[QUERY] < bounds[EMBEDDING] < bounds[DOWN]
    target = tmp_path / "page"
    line = ["compress", str(TINY), "-o", str(target), "--epsilon", "0.02"]
    assert run([*line, "--sensitivity", str(profile)]) == 0
    assert f"{profile}, for all of {matrices} matrices" in capsys.readouterr().out


def test_without_a_profile_there_is_no_word_of_one(tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "page"
    assert run(["compress", str(TINY), "-o", str(target), "--epsilon", "0.02", "--json"]) == 0
    assert "sensitivity" not in json.loads(capsys.readouterr().out)


def test_tensors_that_the_profile_lacks_are_named(tmp_path: Path, capsys: Capture) -> None:
    profile = profile_of(tmp_path / "s.json", WEIGHTS, without=(EMBEDDING, "model.norm.weight"))
    document = compressed(capsys, TINY, profile)
    assert document["sensitivity"]["missing"] == [EMBEDDING]
    bounds = {row["name"]: row["epsilon"] for row in document["files"][0]["tensors"]}
    assert bounds[EMBEDDING] == 0.02 != bounds[DOWN]
    line = ["compress", str(TINY), "-o", str(tmp_path / "page"), "--epsilon", "0.02"]
    assert run([*line, "--sensitivity", str(profile)]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f"it lacks {EMBEDDING}: the common bound there" in page


def test_matrices_without_a_gradient_keep_the_common_bound_and_count(
    tmp_path: Path, capsys: Capture
) -> None:
    unused = tuple(name for name in weights_of(WEIGHTS) if "down_proj" in name)
    profile = profile_of(tmp_path / "s.json", WEIGHTS, unused=(*unused, "model.norm.weight"))
    document = compressed(capsys, TINY, profile)
    assert document["sensitivity"]["without_gradient"] == list(unused)
    rows = {row["name"]: row for row in document["files"][0]["tensors"]}
    assert {rows[name]["epsilon"] for name in unused} == {0.02}
    assert total_error(rows) <= 0.02
    line = ["compress", str(TINY), "-o", str(tmp_path / "page"), "--epsilon", "0.02"]
    assert run([*line, "--sensitivity", str(profile)]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f"{len(unused)} matrices had no gradient ({unused[0]}, " in page


def test_what_only_the_profile_has_does_not_take_part(tmp_path: Path, capsys: Capture) -> None:
    names = [name for name, weights in weights_of(WEIGHTS).items() if weights.ndim > 1]
    profile = profile_of(tmp_path / "s.json", WEIGHTS)
    document = json.loads(profile.read_text())
    (embedding,) = (row for row in document["tensors"] if row["name"] == EMBEDDING)
    merged = embedding | {"name": "experts", "mean_square": 9.0, "mean_squared_gradient": 1e6}
    document["tensors"].append(merged)
    profile.write_text(json.dumps(document))
    rows = {row["name"]: row for row in compressed(capsys, TINY, profile)["files"][0]["tensors"]}
    assert total_error(rows) <= 0.02
    assert rows[EMBEDDING]["epsilon"] < 0.04
    assert all(rows[name]["epsilon"] > 0 for name in names)


def test_a_file_may_have_another_name_than_when_it_was_profiled(
    tmp_path: Path, capsys: Capture
) -> None:
    copy = tmp_path / "copy.safetensors"
    shutil.copy(WEIGHTS, copy)
    profile = profile_of(tmp_path / "s.json", WEIGHTS)
    assert compressed(capsys, copy, profile)["sensitivity"]["missing"] == []


def test_the_profile_of_another_model(tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"other weights")
    profile = profile_of(tmp_path / "s.json", other)
    shown = refused(capsys, TINY, profile)
    assert f"{profile}: was made from another model than {TINY}" in shown
    assert "`unweight profile` makes one of this model" in shown


def test_a_shard_of_another_model(tmp_path: Path, capsys: Capture) -> None:
    model = tmp_path / "model"
    model.mkdir()
    tensors = {
        name: Tensor("BF16", weights.shape, bf16(weights).tobytes())
        for name, weights in weights_of(WEIGHTS).items()
    }
    cut = len(tensors) // 2
    for number, names in enumerate((list(tensors)[:cut], list(tensors)[cut:])):
        write_model(model / f"{number}.safetensors", {name: tensors[name] for name in names}, {})
    one, two = sorted(model.iterdir())
    profile = profile_of(tmp_path / "s.json", one, two)
    assert compressed(capsys, model, profile)["sensitivity"]["missing"] == []
    assert compressed(capsys, two, profile)["sensitivity"]["missing"] == []
    data = bytearray(two.read_bytes())
    data[-1] ^= 1
    two.write_bytes(data)
    assert f"was made from another model than {two}" in refused(capsys, model, profile)


@pytest.mark.parametrize(
    ("text", "words"), [("{}", "format is missing"), ("", "is not valid JSON")]
)
def test_a_file_that_is_no_profile(text: str, words: str, tmp_path: Path, capsys: Capture) -> None:
    profile = tmp_path / "s.json"
    profile.write_text(text)
    line = ["compress", str(TINY), "--epsilon", "0.02", "--sensitivity", str(profile)]
    assert run([*line, "-o", str(tmp_path / "out")]) == 3
    error = capsys.readouterr().err
    assert error.startswith(f"unweight: error: {profile}: not a sensitivity file: ")
    assert words in error


def test_a_profile_that_says_nothing(tmp_path: Path, capsys: Capture) -> None:
    profile = profile_of(tmp_path / "s.json", WEIGHTS, scale=0)
    line = ["compress", str(TINY), "--epsilon", "0.02", "--sensitivity", str(profile)]
    assert run([*line, "-o", str(tmp_path / "out")]) == 3
    assert "nothing to go by" in capsys.readouterr().err


def test_what_has_no_effect_is_refused(tmp_path: Path, capsys: Capture) -> None:
    profile = profile_of(tmp_path / "s.json", WEIGHTS)
    line = ["compress", str(TINY), "--sensitivity", str(profile), "-o", str(tmp_path / "out")]
    assert run(line) == 2
    assert "--sensitivity: has no effect without --epsilon" in capsys.readouterr().err
