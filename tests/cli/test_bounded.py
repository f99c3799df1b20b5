"""The error-bounded mode from the command line: exit codes, JSON, and what people see."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import bounded
from tests.support.models import Tensor, write_model
from tests.support.surgery import Archive
from unweight.evaluation import extra
from unweight_cli.app import run

ROOT = Path(__file__).parents[2]
SHAPE = (200, 64)
NAMES = ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight")


def model_of(path: Path, seed: int = 0) -> Path:
    tensors = {
        name: Tensor(
            "BF16", SHAPE, bounded.words_of(bounded.normal(SHAPE, seed + k), "BF16").tobytes()
        )
        for k, name in enumerate(NAMES)
    }
    norm = bounded.words_of(np.ones(64), "F32").tobytes()
    tensors["model.norm.weight"] = Tensor("F32", (64,), norm)
    return write_model(path, tensors, {"format": "pt"})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return model_of(tmp_path / "model.safetensors")


@pytest.fixture
def coded(model: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["compress", str(model), "--epsilon", "0.0054", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    return model.with_name("model.unweight.safetensors")


def printed(capsys: pytest.CaptureFixture[str], *command: str | Path) -> dict[str, Any]:
    assert run([*map(str, command), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_compress_says_the_error(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compress", str(model), "--epsilon", "0.0054"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "relative error at most 0.005" in shown
    assert "in 2 of 3 tensors, the others bit-exact: verified" in shown


def test_json_of_every_operation(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "model.unweight.safetensors"
    back = tmp_path / "back.safetensors"
    reports = [
        printed(capsys, "compress", model, "--epsilon", "0.0054"),
        printed(capsys, "verify", target),
        printed(capsys, "verify", target, "--against", model),
        printed(capsys, "decompress", target, "-o", back),
    ]
    assert 0.3 < reports[0]["target_bytes"] / reports[0]["source_bytes"] < 0.56
    for report in reports:
        (file,) = report["files"]
        assert file["restored_sha256"] != file["source_sha256"]
        assert file["restored_sha256"] == reports[0]["files"][0]["restored_sha256"]
        for row in file["tensors"]:
            exact = row["name"] == "model.norm.weight"
            assert row["epsilon"] == (0 if exact else 0.0054)
            assert (row["error"] == 0) == (row["max_error"] == 0) == exact
            assert row["error"] <= row["epsilon"]
    assert run(["verify", str(target), "--against", str(back)]) == 4
    assert "is not the file that was compressed" in capsys.readouterr().err


def test_inspect(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "header", str(coded)]) == 0
    shown = capsys.readouterr().out
    assert "bounded, ε = 0.0054" in shown
    header = printed(capsys, "inspect", "header", coded)
    assert (header["mode"], header["epsilon"]) == ("bounded", 0.0054)
    back = coded.with_name("back.safetensors")
    file = printed(capsys, "decompress", coded, "-o", back)["files"][0]
    assert header["restored_sha256"] == hashlib.sha256(back.read_bytes()).hexdigest()
    for digest in (header["source_sha256"], header["restored_sha256"]):
        assert digest in shown
        assert digest in file.values()
    assert run(["inspect", "stages", str(coded), "--tensor", NAMES[0]]) == 0
    shown = capsys.readouterr().out
    for part in (
        "escapes",
        "equally spaced",
        "low bits",
        "rank",
        "error allowed",
        "step",
        "low",
    ):
        assert part in shown
    report = printed(capsys, "inspect", "stages", coded, "--tensor", NAMES[0])
    assert [stage["name"] for stage in report["stages"]] == [
        "channel_outlier",
        "level_grid",
        "tile_svd",
        "error_bound",
        "pack",
    ]
    assert sum(count for _, count in report["histogram"]) == SHAPE[0] * SHAPE[1]
    assert run(["inspect", "tensors", str(coded)]) == 0


def test_against_other_weights_is_a_failed_gate(
    coded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = model_of(tmp_path / "other.safetensors", seed=50)
    assert run(["verify", str(coded), "--against", str(other)]) == 5
    error = capsys.readouterr().err
    assert error.count("\n") <= 2
    for part in (str(coded), NAMES[0], "relative error", "allowed is 0.0054"):
        assert part in error


def test_a_flipped_bit_is_damage(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(coded.read_bytes())
    data[-1000] ^= 1
    coded.write_bytes(data)
    assert run(["verify", str(coded)]) == 4
    assert run(["decompress", str(coded), "-o", str(coded.with_name("back"))]) == 4
    assert not coded.with_name("back").exists()
    assert NAMES[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "epsilon", "words"),
    [
        ({"features": []}, 0.0054, "the feature bounded does not belong to its mode"),
        ({"epsilon": 0, "mode": "lossless"}, 0, "has the impossible epsilon 0"),
        ({"epsilon": 1.5}, 1.5, "has the impossible epsilon 1.5"),
    ],
)
def test_a_file_that_says_what_none_may_say(
    changes: dict[str, object],
    epsilon: float,
    words: str,
    coded: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    archive = Archive.read(coded)
    archive.manifest |= changes
    for name in NAMES:
        archive.manifest["tensors"][name]["epsilon"] = epsilon
    archive.write(coded)
    assert run(["verify", str(coded)]) == 4
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("epsilon", ["-0.1", "1.5", "nan", "inf", "much", ""])
def test_a_bound_that_makes_no_sense(
    model: Path, epsilon: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compress", str(model), f"--epsilon={epsilon}"]) == 2
    assert "epsilon" in capsys.readouterr().err
    assert [path.name for path in model.parent.iterdir()] == [model.name]


def test_a_bound_that_is_searched_takes_settings_of_the_stages_that_allow_it(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extra, "PACKAGES", ("a_package_that_is_not_there",))
    (model.parent / "config.json").write_text("{}")
    line = ["compress", str(model), "--epsilon", "auto", "--max-ppl-delta", "1", "--stage"]
    assert run([*line, "grid:spacing=lloyd"]) == 6
    assert "a_package_that_is_not_there" in capsys.readouterr().err
    assert run([*line, "grid:mantissa_bits=1"]) == 2
    assert "settings of grid (level_grid): spacing, tables" in capsys.readouterr().err


def test_a_bound_in_a_recipe(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[rule]]\ntensors = "*.mlp.*"\npreset = "default"\nepsilon = 0.02\n')
    report = printed(capsys, "compress", model, "--recipe", recipe)
    found = {row["name"]: row["epsilon"] for row in report["files"][0]["tensors"]}
    assert found == {NAMES[0]: 0, NAMES[1]: 0.02, "model.norm.weight": 0}
    recipe.write_text('[[rule]]\ntensors = "*.mlp.*"\npreset = "default"\nepsilon = 2\n')
    assert run(["compress", str(model), "--recipe", str(recipe), "--force"]) == 2
    assert f"{recipe}:1: rule 1: epsilon must be" in capsys.readouterr().err


def test_rules_without_effect_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[rule]]\ntensors = "nothing.*"\nepsilon = 0\n')
    source = ROOT / "fixtures" / "golden" / "1.0" / "bounded" / "model.safetensors"
    line = ["compress", str(source), "-o", str(tmp_path / "c"), "--recipe", str(recipe)]
    note = f"{recipe}: rule 1: no tensor follows it"
    assert run([*line, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["notes"] == [note]
    assert err == f"unweight: note: {note}\n"
    assert run([*line, "--force", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_compressed_original_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coded = ROOT / "fixtures" / "golden" / "1.0" / "bounded" / "model.default.unweight.safetensors"
    other = ROOT / "fixtures" / "golden" / "1.0" / "bounded" / "model.fast.unweight.safetensors"
    assert run(["verify", str(coded), "--against", str(other)]) == 2
    assert capsys.readouterr().err == (
        f"unweight: error: {other}: is compressed itself, and no original (decompress it first)\n"
    )
