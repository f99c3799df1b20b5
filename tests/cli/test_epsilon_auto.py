"""``compress --epsilon auto`` and ``verify --perplexity`` where the original itself is the trouble.

What the search finds on a sound model is in ``test_gates.py``.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.evaluation import (
    EVALUATION_TEXT,
    TINY,
    Weights,
    needs_extra,
    poisoned,
    scrambled,
    variant,
)
from unweight_cli.app import run

pytestmark = needs_extra

Capture = pytest.CaptureFixture[str]
TEXT = ("--text", str(EVALUATION_TEXT), "--windows", "2", "--threads", "1")
QUICK = (*TEXT, "--device", "cpu")

UNSOUND = [
    pytest.param(
        scrambled,
        "no better than guessing among 1,024 tokens: is the text in the model's language?",
        id="scrambled",
    ),
    pytest.param(
        poisoned,
        "the perplexity of the original is nan: the model gives no finite logits",
        id="poisoned",
    ),
]


@pytest.mark.parametrize(("change", "words"), UNSOUND)
def test_nothing_is_tried_on_an_unsound_original(
    change: Callable[[Weights], Weights],
    words: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "unweight.evaluation.compression.compress_planned", lambda *_: pytest.fail("compressed")
    )
    original = variant(tmp_path / "original", change)
    line = ["compress", str(original), "-o", str(tmp_path / "out"), *QUICK]
    assert run([*line, "--epsilon", "auto", "--max-ppl-delta", "1000000"]) == 5
    error = capsys.readouterr().err
    assert error.startswith(f"unweight: error: {original}: the perplexity of the original is ")
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("change", "words"), UNSOUND)
def test_verify_says_it_of_the_original(
    change: Callable[[Weights], Weights], words: str, tmp_path: Path, capsys: Capture
) -> None:
    original = variant(tmp_path / "original", change)
    line = ["verify", str(TINY), "--perplexity", "--against", str(original), *QUICK, "--json"]
    assert run(line) == 5
    failure = json.loads(capsys.readouterr().out)["perplexity"]["failure"]
    assert failure.startswith("the perplexity of the original is ")
    assert words in failure


def test_a_limit_that_no_bound_keeps(tmp_path: Path, capsys: Capture) -> None:
    recipe = tmp_path / "coarse.toml"
    recipe.write_text('[[rule]]\ntensors = ["*"]\nepsilon = 0.3\n')  # goes before what is tried
    line = ["compress", str(TINY), "--recipe", str(recipe), "-o", str(tmp_path / "out"), *QUICK]
    assert run([*line, "--epsilon", "auto", "--max-ppl-delta", "0.01"]) == 5
    error = capsys.readouterr().err
    assert f"{TINY}: none of 6 error bounds passes: with the closest, " in error
    assert "the perplexity changes by +" in error
    assert "more than 0.01" in error
    assert not (tmp_path / "out").exists()


def test_a_report_of_nothing_changed_says_so(tmp_path: Path, capsys: Capture) -> None:
    line = ["compress", str(TINY), "-o", str(tmp_path / "out"), *QUICK]
    assert run([*line, "--epsilon", "auto", "--max-ppl-delta", "1e-12"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "changed nothing: every tensor comes back exactly" in page
    assert "checked bit-exact" in page
