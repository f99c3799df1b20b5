"""``unweight profile``: the file it writes, and what it refuses."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.support.evaluation import EVALUATION_TEXT, TINY, needs_extra, weights_of
from unweight.evaluation.measure.perplexity_report import WindowsReport
from unweight.evaluation.sensitivity.fisher import TensorSensitivity
from unweight.evaluation.sensitivity.profile import ProfileReport
from unweight_cli.app import run

Capture = pytest.CaptureFixture[str]

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
QUICK = (
    "--calibration",
    str(EVALUATION_TEXT),
    "--context",
    "64",
    "--windows",
    "2",
    "--threads",
    "1",
)
SHA256 = "dbd35e573ca92827fe488a026364d1715e5abb310b0f6e02617718600bef82b1"


@needs_extra
def test_the_file(tmp_path: Path, capsys: Capture) -> None:
    output = tmp_path / "sensitivity.json"
    assert run(["profile", str(TINY), *QUICK, "-o", str(output)]) == 0
    page = capsys.readouterr().out
    assert "model.layers.*.self_attn.q_proj.weight" in page
    assert "126 tokens in 2 windows" in page
    document = json.loads(output.read_text(encoding="ascii"))
    assert (document["format"], document["version"]) == ("unweight.sensitivity", 1)
    assert document["models"] == {"model.safetensors": SHA256}
    assert document["calibration"]["scored_tokens"] == 2 * 63
    rows = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert set(rows) == set(weights_of(TINY / "model.safetensors"))
    assert rows["model.norm.weight"]["shape"] == [128]
    assert rows["model.norm.weight"]["mean_squared_gradient"] > 0

    assert run(["profile", str(TINY), *QUICK, "-o", str(output)]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    line = ["profile", str(TINY), *QUICK, "-o", str(output), "--force", "--json"]
    assert run(line) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == json.loads(output.read_text(encoding="ascii"))
    assert again["tensors"] == document["tensors"]


@needs_extra
def test_a_compressed_model_has_the_profile_of_its_original(
    tmp_path: Path, capsys: Capture
) -> None:
    coded, output = tmp_path / "coded", tmp_path / "out.json"
    assert run(["compress", str(TINY), "-o", str(coded), "--quiet"]) == 0
    assert run(["profile", str(coded), *QUICK, "-o", str(output), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    document = json.loads(output.read_text(encoding="ascii"))
    assert document["models"] == {"model.safetensors": SHA256}


def test_refusals(tmp_path: Path, capsys: Capture) -> None:
    output = tmp_path / "out.json"
    gguf = TINY.parents[1] / "golden" / "1.0" / "lossless" / "blocks.gguf"
    empty = tmp_path / "empty.txt"
    empty.write_bytes(b"")
    for line, code, words in (
        (["profile", str(TINY)], 2, "missing option '--calibration'"),
        (["profile", str(gguf), *QUICK], 2, "a GGUF model cannot be profiled"),
        (["profile", str(TINY), "--calibration", str(empty)], 2, "the text is empty"),
        (["profile", str(TINY), *QUICK, "--model", str(tmp_path)], 2, "has no config.json"),
    ):
        assert run([*line, "-o", str(output)]) == code
        assert words in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("report", [ProfileReport, TensorSensitivity, WindowsReport])
def test_every_field_is_documented(report: type) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (body,) = re.findall(r"^## profile\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert {field.name for field in fields(report)} <= set(re.findall(r"`(\w+)`", body))
