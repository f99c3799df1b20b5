"""The JSON documents hold what docs/json.md says."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from unweight.environment import Environment, Space
from unweight.operations.bench import BenchReport, BenchRow
from unweight.operations.diagnosis import Diagnosis
from unweight.operations.report import (
    FileReport,
    HeaderReport,
    OperationReport,
    StageReport,
    StagesReport,
    StreamReport,
    TensorReport,
)
from unweight_cli.app import run
from unweight_codecs.registry import CodecInfo
from unweight_gpu.palette.tuning import TuningReport, TuningRow

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
SECTIONS: dict[str, tuple[type, ...]] = {
    "compress, decompress, verify": (OperationReport, FileReport, TensorReport),
    "inspect header": (HeaderReport,),
    "inspect stages": (StagesReport, StageReport, StreamReport),
    "bench": (BenchReport, BenchRow),
    "tune": (TuningReport, TuningRow),
    "codecs": (CodecInfo,),
    "doctor": (Diagnosis, Environment, Space),
}


@pytest.mark.parametrize(
    ("section", "report"),
    [(section, report) for section, reports in SECTIONS.items() for report in reports],
)
def test_every_field_is_documented(section: str, report: type) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    undocumented = {field.name for field in fields(report)} - set(re.findall(r"`(\w+)`", body))
    assert undocumented == set()


def test_codecs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["codecs", "--json"]) == 0
    codecs = json.loads(capsys.readouterr().out)["codecs"]
    assert {codec["slot"] for codec in codecs} >= {"outlier", "grid", "pack"}


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["problem"] == ""
    assert document["kernel"] in {kernel["name"] for kernel in document["kernels"]}
    assert document["environment"]["versions"]["numpy"]
