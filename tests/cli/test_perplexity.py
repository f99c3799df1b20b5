"""``unweight verify --perplexity``: measured, proven, refused, and the exit code of the gate."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.support.evaluation import (
    EVALUATION_TEXT,
    TINY,
    needs_extra,
    noisy,
    poisoned,
    scrambled,
    variant,
    weights_of,
)
from unweight.evaluation import extra
from unweight.evaluation.measure import perplexity_check as verification
from unweight.evaluation.measure.estimates import Estimate
from unweight.evaluation.measure.perplexity_report import PerplexityReport, WindowsReport
from unweight_cli.app import run

RunCli = Callable[..., subprocess.CompletedProcess[str]]
Capture = pytest.CaptureFixture[str]

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
QUICK = (
    *("--text", str(EVALUATION_TEXT), "--context", "128", "--windows", "2"),
    *("--device", "cpu", "--threads", "1"),
)


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("coded") / "tiny.unweight"
    assert run(["compress", str(TINY), "-o", str(target), "--quiet"]) == 0
    return target


def measured(capsys: Capture, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    line = ["verify", *map(str, arguments), "--perplexity", *QUICK, "--json"]
    assert run(line) == code
    shown = capsys.readouterr()
    assert bool(shown.err) == bool(code)
    document: dict[str, Any] = json.loads(shown.out)
    return document


def test_what_is_bit_exact_is_proven_without_the_extra(
    coded: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "PACKAGES", ("a_package_that_is_not_there",))
    assert run(["verify", str(coded), "--perplexity", "--max-delta", "0"]) == 0
    page = capsys.readouterr().out
    assert "intact" in page
    assert "the difference is zero by proof" in page
    assert "--measure" in page
    assert run(["verify", str(coded), "--perplexity", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["checked"], document["exact"]) == ("digests", True)
    assert document["perplexity"]["bit_exact"] is True
    assert document["perplexity"]["evaluated"] is None
    assert document["perplexity"]["difference"] == {"value": 0.0, "standard_error": 0.0}


def test_damage_is_found_before_anything_is_said_of_perplexity(
    coded: Path, tmp_path: Path, capsys: Capture
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(coded, damaged)
    data = bytearray((damaged / "model.safetensors").read_bytes())
    data[-40] ^= 1
    (damaged / "model.safetensors").write_bytes(data)
    assert run(["verify", str(damaged), "--perplexity"]) == 4
    assert capsys.readouterr().out == ""


@needs_extra
def test_measured_on_request(coded: Path, capsys: Capture) -> None:
    document = measured(capsys, coded, "--measure", "--against", TINY)
    found = document["perplexity"]
    assert document["operation"] == "verify"
    assert document["files"]
    assert found["original"] == found["restored"]
    assert found["difference"]["value"] == found["kl_divergence"]["value"] == 0
    assert found["same_top"]["value"] == 1
    assert found["evaluated"] == {
        "text": str(EVALUATION_TEXT),
        "text_bytes": EVALUATION_TEXT.stat().st_size,
        "text_tokens": 47_247,
        "context": 128,
        "windows": 2,
        "scored_tokens": 2 * 63,
        "bos": "<s>",
    }


@needs_extra
def test_the_page(coded: Path, capsys: Capture) -> None:
    line = ["verify", str(coded), "--perplexity", "--measure", "--against", str(TINY), *QUICK]
    assert run(line) == 0
    page = capsys.readouterr().out
    for words in (
        "zero by proof",
        "+0.0000 ± 0.0000",
        "100.00 %",
        "within 0.01",
        "2 windows of 128 tokens, <s> first in each; 126 tokens scored",
        "47,247 tokens",
        "on cpu",
    ):
        assert words in page


@needs_extra
@pytest.mark.parametrize("lossy", [True, False])
def test_a_single_compressed_file(
    lossy: bool, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lossy:
        monkeypatch.setattr(verification, "is_bit_exact", lambda archives: False)
    target = tmp_path / "model.unweight.safetensors"
    assert run(["compress", str(TINY / "model.safetensors"), "-o", str(target), "--quiet"]) == 0
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    options = ("--against", TINY / "model.safetensors", *(() if lossy else ("--measure",)))
    found = measured(capsys, target, *options)["perplexity"]
    assert found["bit_exact"] is not lossy
    assert found["difference"]["value"] == 0
    assert found["max_delta"] == 0.01
    assert list(temporary.iterdir()) == []


@needs_extra
def test_a_sharded_model(tmp_path: Path, capsys: Capture) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    shutil.copy(TINY / "model.safetensors", shards / "weights-00001-of-00001.safetensors")
    names = weights_of(TINY / "model.safetensors")
    places = dict.fromkeys(names, "weights-00001-of-00001.safetensors")
    index = shards / "odd.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    target = tmp_path / "out"
    assert run(["compress", str(index), "-o", str(target), "--quiet"]) == 0
    (packed,) = target.glob("*.index.json")
    found = measured(capsys, packed, "--measure", "--model", TINY)["perplexity"]
    plain = measured(capsys, TINY)["perplexity"]
    assert found["restored"] == plain["restored"]


@needs_extra
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (noisy, "changes by +"),
        (scrambled, "no better than guessing among 1,024 tokens"),
        (poisoned, "the perplexity is nan"),
    ],
)
def test_the_gate_shuts(
    change: Callable[[Any], Any], words: str, tmp_path: Path, capsys: Capture
) -> None:
    bad = variant(tmp_path / "bad", change)
    line = ["verify", str(bad), "--perplexity", "--against", str(TINY), *QUICK]
    assert run([*line, "--json"]) == 5
    shown = capsys.readouterr()
    document = json.loads(shown.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert words in document["perplexity"]["failure"]
    assert words in shown.err
    assert shown.err.startswith(f"unweight: error: {bad}: ")
    assert shown.err.count("\n") == 1
    assert run([*line, "--quiet"]) == 5
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err


@needs_extra
def test_without_an_original_only_a_broken_model_fails(tmp_path: Path, capsys: Capture) -> None:
    assert measured(capsys, variant(tmp_path / "noisy", noisy))["perplexity"]["difference"] is None
    for change in (scrambled, poisoned):
        bad = variant(tmp_path / change.__name__, change)
        assert measured(capsys, bad, code=5)["perplexity"]["failure"]


@needs_extra
def test_a_wider_limit_opens_the_gate(tmp_path: Path, capsys: Capture) -> None:
    bad = variant(tmp_path / "noisy", noisy)
    found = measured(capsys, bad, "--against", TINY, "--max-delta", "50")["perplexity"]
    assert found["failure"] == ""
    assert found["max_delta"] == 50


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-delta", "0.1"), "--max-delta: has no effect without --perplexity"),
        (("--text", "eval.txt", "--measure"), "--text, --measure: has no effect"),
        (("--perplexity", "--max-delta", "0.1"), "--against names the original"),
        (("--perplexity", "--max-delta", "nan", "--against", "."), "must be a number from 0 up"),
        (("--perplexity", "--max-delta", "-1", "--against", "."), "must be a number from 0 up"),
        (("--perplexity", "--windows", "0"), "'--windows'"),
        (("--perplexity", "--context", "7"), "'--context'"),
        (("--perplexity", "--text", "missing.txt"), "missing.txt: no such file"),
        (("--perplexity", "--model", "missing"), "missing: no such file"),
        (("--perplexity", "--model", ".."), "has no config.json"),
    ],
)
def test_lines_that_make_no_sense(
    options: tuple[str, ...], words: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TINY)
    assert run(["verify", ".", *options]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""


def test_the_extra_is_missing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "PACKAGES", ("json", "a_package_that_is_not_there"))
    assert run(["verify", str(TINY), "--perplexity"]) == 6
    assert capsys.readouterr().err == (
        "unweight: error: perplexity needs a_package_that_is_not_there "
        "(pip install 'unweight[eval]')\n"
    )


@needs_extra
@pytest.mark.parametrize(
    ("left_out", "code", "words"),
    [("config.json", 2, "no config.json in it"), ("tokenizer*", 3, "cannot load the tokenizer")],
)
def test_a_model_that_lacks_a_file(
    left_out: str, code: int, words: str, tmp_path: Path, capsys: Capture
) -> None:
    model = tmp_path / "model"
    shutil.copytree(TINY, model, ignore=shutil.ignore_patterns(left_out))
    assert run(["verify", str(model), "--perplexity", *QUICK]) == code
    assert words in capsys.readouterr().err
    assert run(["verify", str(model), "--perplexity", *QUICK, "--model", str(TINY)]) == 0


@needs_extra
def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path, capsys: Capture) -> None:
    model = tmp_path / "model"
    shutil.copytree(TINY, model)
    settings = json.loads((model / "config.json").read_text(encoding="utf-8"))
    settings |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (model / "config.json").write_text(json.dumps(settings))
    (model / "own.py").write_text("raise SystemExit(99)\n")
    assert run(["verify", str(model), "--perplexity", *QUICK]) == 3
    assert "unweight: error: " in capsys.readouterr().err


@needs_extra
def test_a_terminated_run_leaves_no_weights_behind(
    coded: Path, tmp_path: Path, spawn: Callable[..., "subprocess.Popen[str]"]
) -> None:
    # The signal comes when the weights are restored and the model is about to be loaded.
    script = (
        "import os, signal, tempfile\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "from unweight.evaluation.measure import perplexity_check\n"
        "def load(checkpoint, device):\n"
        "    assert (checkpoint.weights / 'model.safetensors').is_file()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "perplexity_check.load = load\n"
        "from unweight_cli.__main__ import main\n"
        "main()\n"
    )
    run = spawn("verify", coded, "--perplexity", "--measure", *QUICK, script=script)
    shown, errors = run.communicate(timeout=120)
    assert (run.returncode, shown, errors) == (143, "", "unweight: error: terminated\n")
    assert list(tmp_path.glob("unweight-*")) == []


def test_torch_is_not_loaded_without_need(cli: RunCli) -> None:
    script = (
        "import sys; from unweight_cli.app import run; run(['verify', '--help']);"
        "import unweight.evaluation.measure.perplexity_check;"
        "sys.exit(bool({'torch', 'transformers', 'rich', 'typer.rich_utils'} & set(sys.modules)))"
    )
    assert cli(script=script).returncode == 0


@pytest.mark.parametrize("report", [PerplexityReport, WindowsReport, Estimate])
def test_every_field_is_documented(report: type) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (body,) = re.findall(r"^## verify --perplexity\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert {field.name for field in fields(report)} <= set(re.findall(r"`(\w+)`", body))
