"""The two gates from end to end: what ``--epsilon auto`` promises, and ``verify`` as a judge of it.

On the tiny model with every change, on SmolLM2-135M as BF16 among the slow tests.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.evaluation import EVALUATION_TEXT, TINY, needs_extra
from tests.support.smollm2 import needs_smollm2, write_bf16
from tests.support.surgery import Archive
from unweight_cli.app import run

pytestmark = needs_extra

Capture = pytest.CaptureFixture[str]

TOO_MUCH = "0.2"  # an error bound that no model bears


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and what must come of it.

    Attributes:
        write: Writes the model directory, or returns where there is one.
        options: What to evaluate on; every token that ``scored`` counts.
        calibration: Windows to profile with.
        limit: The largest change of perplexity, up or down.
        scored: Least number of tokens that the gate is measured on.
        share: Largest size of the compressed weights, as a share of the original ones.
    """

    write: Callable[[Path], Path]
    options: tuple[str, ...]
    calibration: int
    limit: float
    scored: int
    share: float


@dataclass(frozen=True, slots=True)
class Gate:
    """A case that was profiled and compressed; ``report`` is what ``compress --json`` printed."""

    case: Case
    model: Path
    packed: Path
    report: dict[str, Any]

    def verify(self, capsys: Capture, path: Path, code: int, *more: str) -> dict[str, Any]:
        """Verify a file of the model against its original."""
        line = ["verify", str(path), "--against", str(self.model), *more, "--json"]
        assert run(line) == code, capsys.readouterr().err
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    def judge(self, capsys: Capture, path: Path, code: int, *more: str) -> dict[str, Any]:
        """Measure the perplexity of a file of the model, too, and return what was measured."""
        options = (*self.case.options, *more, "--max-delta", str(self.case.limit))
        found = self.verify(capsys, path, code, "--perplexity", *options)["perplexity"]
        assert isinstance(found, dict)
        return found


# The limit of the tiny model is wider: 16 windows tell its perplexity to no less than 0.05.
CASES = [
    pytest.param(
        Case(
            lambda folder: TINY,
            ("--text", str(EVALUATION_TEXT), "--windows", "16", "--threads", "1"),
            calibration=4,
            limit=0.1,
            scored=4_000,
            share=0.45,
        ),
        id="tiny",
    ),
    pytest.param(
        Case(
            write_bf16,
            ("--windows", "32"),
            calibration=4,
            limit=0.01,
            scored=8_000,
            share=0.56,
        ),
        id="SmolLM2-135M",
        marks=(pytest.mark.slow, needs_smollm2),
    ),
]


@pytest.fixture(scope="module", params=CASES)
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Gate:
    """Profile a model and compress it with the largest error bound within the limit."""
    case, folder = request.param, tmp_path_factory.mktemp("gate")
    model = case.write(folder / "model")
    profile, packed, report = folder / "profile.json", folder / "packed", folder / "report.json"
    calibration = ("--calibration", str(EVALUATION_TEXT), "--windows", str(case.calibration))
    assert run(["profile", str(model), *calibration, "-o", str(profile), "--quiet"]) == 0
    line = ["compress", str(model), "-o", str(packed), "--sensitivity", str(profile), "--json"]
    with report.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        code = run([*line, "--epsilon", "auto", "--max-ppl-delta", str(case.limit), *case.options])
    assert code == 0
    return Gate(case, model, packed, json.loads(report.read_text()))


def coded_at(gate: Gate, epsilon: str, path: Path) -> Path:
    """Compress the weights of the model with another error bound."""
    line = ["compress", str(gate.model), "-o", str(path), "--epsilon", epsilon, "--quiet"]
    assert run(line) == 0
    return path


def test_the_bound_that_was_found_is_within_the_limits(gate: Gate) -> None:
    (file,) = gate.report["files"]
    assert file["target_bytes"] <= gate.case.share * file["source_bytes"]
    search = gate.report["search"]
    (chosen,) = (a for a in search["attempts"] if a["epsilon"] == search["epsilon"])
    assert abs(chosen["difference"]["value"]) <= gate.case.limit
    larger = [a for a in search["attempts"] if a["epsilon"] > search["epsilon"]]
    assert all(abs(a["difference"]["value"]) > gate.case.limit for a in larger)
    assert gate.report["sensitivity"]["missing"] == []


def test_the_gates_open_for_it(gate: Gate, capsys: Capture) -> None:
    document = gate.judge(capsys, gate.packed, 0)
    assert document["failure"] == ""
    assert document["evaluated"]["scored_tokens"] >= gate.case.scored
    search = gate.report["search"]
    (chosen,) = (a for a in search["attempts"] if a["epsilon"] == search["epsilon"])
    measured = document["difference"]["value"]
    assert abs(measured) <= gate.case.limit
    # Another process, so to speak: both models side by side instead of one after the other.
    assert measured == pytest.approx(chosen["difference"]["value"], abs=1e-3)


def test_the_gate_of_the_perplexity_shuts(gate: Gate, tmp_path: Path, capsys: Capture) -> None:
    broken = coded_at(gate, TOO_MUCH, tmp_path / "broken")
    document = gate.judge(capsys, broken, 5, "--windows", "2")
    assert "the perplexity changes by +" in document["failure"]
    gate.verify(capsys, broken, 0)  # what was asked for is what it has: the other gate is open


def test_the_gate_of_the_error_bound_shuts(gate: Gate, tmp_path: Path, capsys: Capture) -> None:
    gate.verify(capsys, gate.packed, 0)
    name = "model.safetensors"
    archive = Archive.read(gate.packed / name)
    bounds = [t for t in archive.manifest["tensors"].values() if "epsilon" in t]
    for tensor in bounds:
        tensor["epsilon"] = 0.9 * tensor["error"]
    archive.manifest["epsilon"] = max(tensor["epsilon"] for tensor in bounds)
    liar = archive.write(tmp_path / "liar.safetensors")
    assert run(["verify", str(liar), "--quiet"]) == 0  # every digest is right
    assert run(["verify", str(liar), "--against", str(gate.model / name)]) == 5
    assert "has the relative error" in capsys.readouterr().err
