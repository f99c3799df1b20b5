"""Figures, targets, the table and the file of the benchmark of devices."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cpu.measure import Spread
from benchmarks.gpu.cases import Line
from benchmarks.gpu.figures import DECODING, FUSED, Figure, Target, microseconds, report, terabytes
from benchmarks.gpu.results import Results
from tests.gpu.support.benchmarking import COPY
from unweight_codecs.errors import IntegrityError, ResourceError

DECODED = Figure("rANS to BF16", "default", Spread(0.9, 0.8, 1.0), "TB/s", target=DECODING)


MULTIPLIED = Figure(
    "fused product", "tokens 1", Spread(6, 5, 7), "us", "torch BF16", Spread(9, 9, 9), FUSED
)


def test_targets() -> None:
    assert (COPY.met, DECODED.met, MULTIPLIED.met) == (None, False, True)
    assert replace(DECODED, target=Target(0.9, "value")).met
    assert MULTIPLIED.ratio == 1.5
    assert replace(MULTIPLIED, unit="GB/s").ratio == 6 / 9
    assert terabytes(10**12, [1.0, 2.0, 4.0]) == Spread(0.5, 0.25, 1.0)
    assert microseconds([1e-6]) == Spread(1.0, 1.0, 1.0)


def test_the_table() -> None:
    lines = report([COPY, DECODED, MULTIPLIED]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["name", "size", "value", "unit", "peer", "ratio", "target", "met?"]
    assert cells[2] == ["device copy", "2048 MiB", "4.30 (4.20-4.40)", "TB/s", "", "", "", ""]
    assert cells[3][5:] == ["", "1 TB/s", "no"]
    assert cells[4][4:] == ["torch BF16: 9.00", "1.50", "1.25 x", "yes"]


def test_the_file(tmp_path: Path) -> None:
    results = Results("a device, driver 1", tmp_path / "gpu.json", notes=["a note"])
    results.compare([("decoding", lambda: Line("decoding", 30))])
    results.measure([("all", lambda: [COPY, DECODED, MULTIPLIED])])
    document = json.loads((tmp_path / "gpu.json").read_text())
    assert document["device"] == "a device, driver 1"
    assert document["checks"] == [{"name": "decoding", "cases": 30, "stored": 0}]
    assert document["figures"][1]["value"] == {"median": 0.9, "low": 0.8, "high": 1.0}
    assert [figure["met"] for figure in document["figures"]] == [None, False, True]
    assert document["figures"][2]["target"] == {"least": 1.25, "of": "ratio"}
    assert document["notes"] == ["a note"]
    assert set(document["versions"]) >= {"unweight", "torch", "cupy-cuda13x"}
    assert "Note: a note" in results.text()
    assert "a device, driver 1" in results.text()


def test_a_part_that_fails_does_not_end_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def memory() -> Iterator[Figure]:
        yield COPY
        raise ResourceError("the device has too little memory")

    def mistake() -> Iterator[Figure]:
        yield from ()
        raise TypeError("a mistake")

    results = Results("a device", tmp_path / "gpu.json")
    results.measure([("first", memory), ("second", mistake), ("third", lambda: [DECODED])])
    assert results.figures == [COPY, DECODED]
    assert results.failures == [6, 1]
    assert results.notes == [
        "first failed: the device has too little memory",
        "second failed: a mistake",
    ]
    assert "TypeError: a mistake" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "gpu.json").read_text())["figures"]) == 2


def test_a_difference_ends_everything(tmp_path: Path) -> None:
    def differs() -> Line:
        raise IntegrityError("decoding: BF16: the device differs from the processor")

    results = Results("a device", tmp_path / "gpu.json")
    with pytest.raises(IntegrityError):
        results.compare([("decoding", differs), ("palettes", lambda: Line("palettes", 1))])
    assert not results.checks
    assert "differs" in json.loads((tmp_path / "gpu.json").read_text())["notes"][0]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    results = Results("a device", tmp_path / "missing" / "gpu.json")
    with pytest.raises(ResourceError, match="No such file or directory"):
        results.compare([("decoding", lambda: Line("decoding", 1))])
