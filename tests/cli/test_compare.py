"""``unweight compare``: its rows against other ways to measure them, its plot, what it refuses."""

import importlib.util
import io
import json
import math
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.support.evaluation import (
    EVALUATION_TEXT,
    TINY,
    load_model,
    needs_extra,
    poisoned,
    variant,
    weights_of,
)
from tests.support.models import gaussian, noise, write_model
from unweight.evaluation import extra
from unweight.evaluation.compare.comparison_report import ComparisonReport, ComparisonRow
from unweight.evaluation.compare.methods import METHODS
from unweight.evaluation.measure.estimates import Estimate
from unweight.evaluation.measure.perplexity_report import WindowsReport
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.progress import NoProgress
from unweight_cli.app import run
from unweight_cli.render.comparison import comparison

Capture = pytest.CaptureFixture[str]

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
WEIGHTS = TINY / "model.safetensors"
QUICK = (
    *("--text", str(EVALUATION_TEXT), "--context", "64", "--windows", "2"),
    *("--device", "cpu", "--threads", "1", "--epsilon", "0.02"),
)
ALONE = ("--no-perplexity", "--threads", "1", "--epsilon", "0.02")
NAMES = [
    "original",
    *("fast", "default", "max", "bounded 0.02"),
    *(method.name for method in METHODS),
]

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None,
    reason="matplotlib is not installed: pip install 'unweight[eval]'",
)


def compared(capsys: Capture, *arguments: str | Path) -> dict[str, Any]:
    assert run(["compare", *map(str, arguments), "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    document: dict[str, Any] = json.loads(
        shown.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON")
    )
    return document


def rows_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    assert [row["name"] for row in document["rows"]] == NAMES
    return {row["name"]: row for row in document["rows"]}


def test_sizes_and_errors_without_the_extra(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extra, "PACKAGES", ("a_package_that_is_not_there",))
    document = compared(capsys, WEIGHTS, *ALONE)
    rows, weights = rows_of(document), weights_of(WEIGHTS)
    total = sum(array.size for array in weights.values())
    matrices = {name: array for name, array in weights.items() if array.ndim > 1}
    assert document["weights"] == total
    assert document["matrices"] == len(matrices)
    assert document["matrix_weights"] == sum(array.size for array in matrices.values())
    assert document["evaluated"] is None
    assert rows["original"]["nbytes"] == WEIGHTS.stat().st_size
    vectors = 2 * (total - document["matrix_weights"])
    assert rows["Q8_0"]["nbytes"] == vectors + document["matrix_weights"] // 32 * 34
    for preset in ("fast", "default", "max"):
        target = tmp_path / preset
        compress(WEIGHTS, target, CompressOptions(preset=preset), NoProgress())
        assert rows[preset]["nbytes"] == target.stat().st_size
        assert rows[preset]["weight_error"] == 0
    target = tmp_path / "bounded"
    compress(WEIGHTS, target, CompressOptions(epsilon=0.02), NoProgress())
    assert rows["bounded 0.02"]["nbytes"] == target.stat().st_size
    assert 0.015 < rows["bounded 0.02"]["weight_error"] <= 0.02
    pruned = rows["50 % of weights pruned"]
    lost = sum(
        float(np.sort(np.square(array, dtype=np.float64), axis=None)[: round(array.size / 2)].sum())
        for array in matrices.values()
    )
    whole = sum(float(np.square(array, dtype=np.float64).sum()) for array in matrices.values())
    assert pruned["weight_error"] == pytest.approx((lost / whole) ** 0.5, rel=1e-9)
    for row in document["rows"]:
        assert row["bits_per_weight"] == pytest.approx(8 * row["nbytes"] / total)
        assert row["perplexity"] is row["difference"] is row["kl_divergence"] is None
        assert row["is_file"] == (row["kind"] in ("original", "lossless", "bounded"))


@needs_extra
def test_perplexity_is_that_of_a_model_with_these_weights(capsys: Capture) -> None:
    from unweight.evaluation.measure.perplexity import compare
    from unweight.evaluation.model.language_model import replaced
    from unweight.evaluation.model.token_windows import cut
    from unweight.evaluation.model.tokenizer import load_tokenizer
    from unweight.evaluation.text import read_text

    document = compared(capsys, TINY, *QUICK)
    rows = rows_of(document)
    assert document["device"] == "cpu"
    assert document["evaluated"]["scored_tokens"] == 2 * 31
    first, second = load_model(TINY), load_model(TINY)
    windows = cut(read_text(EVALUATION_TEXT), load_tokenizer(TINY), 64, 2)
    matrices = {name: array for name, array in weights_of(WEIGHTS).items() if array.ndim > 1}
    for method in METHODS:
        changed = {name: method.change(array, 2)[0] for name, array in matrices.items()}
        with replaced(second, changed):
            expected = compare(first, second, windows, NoProgress())
        row = rows[method.name]
        for name, estimate in (
            ("perplexity", expected.candidate),
            ("difference", expected.difference),
            ("kl_divergence", expected.kl_divergence),
        ):
            for part, value in estimate.to_dict().items():
                assert row[name][part] == pytest.approx(value, rel=1e-4, abs=1e-6)
        original = expected.original.to_dict()
    for name in ("original", "fast", "default", "max"):
        assert rows[name]["difference"] == {"value": 0.0, "standard_error": 0.0}
        assert rows[name]["kl_divergence"] == {"value": 0.0, "standard_error": 0.0}
        assert rows[name]["perplexity"]["value"] == pytest.approx(original["value"])
    divergences = [
        rows[name]["kl_divergence"]["value"]
        for name in ("Q8_0", "bounded 0.02", "Q4_0", "50 % of weights pruned")
    ]
    assert divergences == sorted(divergences)
    assert divergences[0] > 0


def report_of(*rows: ComparisonRow) -> ComparisonReport:
    evaluated = WindowsReport("text.txt", 9000, 4000, 512, 4, 1020, "")
    return ComparisonReport("model", 3, 80, 100, ("odd", "odder"), evaluated, rows, "cpu", 9.0)


BROKEN = report_of(
    ComparisonRow("original", "original", 200, True, 16.0, 0.0, *[Estimate(30.5, 0.25)] * 3),
    ComparisonRow("broken", "pruned", 100, False, 8.0, 0.5, *[Estimate(math.nan, math.nan)] * 3),
    ComparisonRow("bad", "pruned", 90, False, 7.2, 0.6, *[Estimate(math.inf, math.inf)] * 3),
    ComparisonRow("same", "bounded", 80, True, 6.4, 0.01, *[Estimate(-1e-9, 0.0)] * 3),
)


def test_a_method_that_breaks_the_model_has_a_row() -> None:
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    with console.capture() as captured:
        for part in comparison(BROKEN):
            console.print(part)
    page = captured.get()
    cells = {line.split()[0]: line.split()[1:] for line in page.splitlines() if line}
    assert cells["original"] == ["100.00", "%", "16.000", "0", "30.50", "±", "0.25", "0"]
    assert cells["broken"] == ["50.00", "%", "8.000", "0.5", "+nan", "nan"]
    assert cells["bad"] == ["45.00", "%", "7.200", "0.6", "+inf", "inf"]
    assert cells["same"] == ["40.00", "%", "6.400", "0.01", "-0.0000", "±", "0.0000", "-1e-09"]
    assert "odd, odder" in page
    found = BROKEN.to_dict()["rows"][1]
    assert found["difference"] == {"value": None, "standard_error": None}
    json.dumps(BROKEN.to_dict(), allow_nan=False)


@needs_matplotlib
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_plot_leaves_out_what_has_no_place(kind: str) -> None:
    from unweight_cli.render.rate_distortion import drawn

    assert drawn(BROKEN, kind) == drawn(BROKEN, kind)


@needs_extra
@needs_matplotlib
def test_the_page_and_the_plot(tmp_path: Path, capsys: Capture) -> None:
    plot = tmp_path / "plot.svg"
    line = ["compare", str(WEIGHTS), *QUICK, "--model", str(TINY), "--plot", str(plot)]
    assert run(line) == 0
    page = capsys.readouterr().out
    for words in (
        *NAMES,
        "perplexity",
        "KL",
        "payload only",
        "62 tokens in 2 windows of 64",
        "INT4: symmetric, an F16 scale per 32 weights",
    ):
        assert words in page
    drawing = plot.read_text(encoding="utf-8")
    assert drawing.startswith("<?xml")
    assert "<svg" in drawing
    assert drawing.rstrip().endswith("</svg>")
    before = plot.read_bytes()
    assert run(line) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert plot.read_bytes() == before
    assert run([*line, "--force", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert plot.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["plot.svg"]


@needs_matplotlib
def test_a_plot_without_perplexity(tmp_path: Path, capsys: Capture) -> None:
    plot = tmp_path / "plot.PNG"
    assert run(["compare", str(WEIGHTS), *ALONE, "--plot", str(plot)]) == 0
    assert "Perplexity was not measured" in capsys.readouterr().out
    assert plot.read_bytes().startswith(b"\x89PNG\r\n")


def test_shards_of_a_compressed_directory(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, packed, temporary = (tmp_path / name for name in ("model", "packed", "temporary"))
    temporary.mkdir()
    shards = {
        "one.safetensors": {
            "a": gaussian("BF16", (64, 64), 1),
            "odd": gaussian("BF16", (8, 30), 2),
        },
        "two.safetensors": {"b": gaussian("F32", (64, 32), 3), "bias": gaussian("F32", (9,), 4)},
    }
    for name, tensors in shards.items():
        write_model(model / name, tensors)
    places = {name: file for file, tensors in shards.items() for name in tensors}
    index = {"metadata": {}, "weight_map": places}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    compress(model, packed, CompressOptions(), NoProgress())
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    plain, restored = (compared(capsys, path, *ALONE) for path in (model, packed))
    assert [row | {"nbytes": 0} for row in plain["rows"]] == [
        row | {"nbytes": 0} for row in restored["rows"]
    ]
    assert plain["rows"] == restored["rows"]
    assert plain["matrices"] == 3
    assert plain["unchanged"] == ["odd"]
    rows = rows_of(plain)
    assert rows["Q4_0"]["nbytes"] == (64 * 64 + 64 * 32) // 32 * 18 + 8 * 30 * 2 + 9 * 4
    assert list(temporary.iterdir()) == []
    assert run(["compare", str(model), *ALONE]) == 0
    assert "leave 1 tensor as they are, whose rows are not whole blocks: odd." in (
        capsys.readouterr().out
    )


@needs_extra
def test_a_model_without_finite_logits(tmp_path: Path, capsys: Capture) -> None:
    bad = variant(tmp_path / "bad", poisoned)
    assert run(["compare", str(bad), *QUICK]) == 5
    assert "the model gives no finite logits" in capsys.readouterr().err
    assert run(["compare", str(bad), *ALONE]) == 3
    assert "up_proj.weight' holds weights that are not finite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--no-perplexity", "--windows", "3"), "--windows: has no effect with --no-perplexity"),
        (("--no-perplexity", "--text", "eval.txt"), "--text: has no effect"),
        (("--epsilon", "0"), "--epsilon must be above 0: the lossless rows are there anyway"),
        (("--epsilon", "nan"), "epsilon must be a number from 0 to 1"),
        (("--epsilon", "-0.1"), "epsilon must be a number from 0 to 1"),
        (("--epsilon", "2"), "epsilon must be a number from 0 to 1"),
        (("--epsilon", "much"), "'--epsilon'"),
        (("--windows", "-1"), "'--windows'"),
        (("--plot", "plot.pdf"), "--plot plot.pdf: unknown kind of file (name a .svg or .png"),
        (("--plot", "missing/plot.svg"), "missing: no such directory"),
        (("--text", "missing.txt"), "missing.txt: no such file"),
        (("--model", ".."), "has no config.json"),
    ],
)
def test_lines_that_make_no_sense(
    options: tuple[str, ...], words: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TINY)
    assert run(["compare", ".", *options]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""


def test_models_that_cannot_be_compared(tmp_path: Path, capsys: Capture) -> None:
    lone = tmp_path / "lone.safetensors"
    shutil.copy(WEIGHTS, lone)
    bounded = tmp_path / "bounded.safetensors"
    compress(WEIGHTS, bounded, CompressOptions(epsilon=0.05), NoProgress())
    integers = write_model(tmp_path / "integers.safetensors", {"a": noise((64, 64), 1)})
    blocks = TINY.parents[1] / "golden" / "1.0" / "lossless" / "blocks.gguf"
    for line, code, words in (
        ([lone], 2, "no config.json beside it"),
        ([blocks], 2, "a GGUF model cannot be compared"),
        ([bounded, *ALONE], 2, "its weights are not the original ones"),
        ([integers, *ALONE], 3, "holds no matrix of floats"),
        ([tmp_path / "missing"], 2, "no such file"),
    ):
        assert run(["compare", *map(str, line)]) == code
        assert words in capsys.readouterr().err


def test_packages_that_are_missing(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "PACKAGES", ("json", "a_package_that_is_not_there"))
    assert run(["compare", str(TINY)]) == 6
    assert "perplexity needs a_package_that_is_not_there" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    plot = tmp_path / "plot.svg"
    for line, words in (
        (["--no-perplexity"], "the comparison needs gguf"),
        (["--no-perplexity", "--plot", str(plot)], "a plot needs matplotlib"),
    ):
        assert run(["compare", str(TINY), *line]) == 6
        shown = capsys.readouterr()
        assert words in shown.err
        assert "pip install 'unweight[eval]'" in shown.err
    assert not plot.exists()


@pytest.mark.parametrize("report", [ComparisonReport, ComparisonRow, WindowsReport, Estimate])
def test_every_field_is_documented(report: type) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (body,) = re.findall(r"^## compare\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert {field.name for field in fields(report)} <= set(re.findall(r"`(\w+)`", body))
