"""What ``inspect`` says of tensors within an error bound."""

from pathlib import Path

import numpy as np
import pytest

from tests.support import bounded
from tests.support.models import Tensor, write_model
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.inspect.header import inspect_header, inspect_stages
from unweight.operations.progress import NoProgress
from unweight.operations.report import StagesReport

QUIET = NoProgress()
SHAPE = (160, 64)


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = bounded.normal(SHAPE, 0)
    values[:64] *= 1e-36
    tensors = {
        "normal": bounded.with_specials(bounded.words_of(bounded.normal(SHAPE, 1), "F32"), "F32"),
        "few": bounded.words_of(bounded.few(SHAPE, 2), "F32"),
        "factors": bounded.words_of(bounded.low_rank(SHAPE, 1, 3, 0.01), "F32"),
        "kept": bounded.words_of(values, "F32"),
        "asked": bounded.words_of(bounded.normal(SHAPE, 4), "F32"),
    }
    folder = tmp_path_factory.mktemp("model")
    source = write_model(
        folder / "model.safetensors",
        {name: Tensor("F32", SHAPE, words.tobytes()) for name, words in tensors.items()},
    )
    recipe = folder / "recipe.toml"
    recipe.write_text(
        '[[rule]]\ntensors = "few"\npreset = "default"\n'
        '[[rule]]\ntensors = "kept"\npreset = "fast"\nstages = ["pack:chunk_log2=12"]\n'
        '[[rule]]\ntensors = "asked"\npreset = "fast"\nstages = ["grid:spacing=lloyd"]\n'
    )
    options = CompressOptions(preset="max", epsilon=0.004, recipe=recipe)
    compress(source, folder / "coded", options, QUIET)
    return folder / "coded"


def facts(report: StagesReport, stage: str) -> dict[str, str | int | float]:
    return next(found.facts for found in report.stages if found.name == stage)


def streams(report: StagesReport) -> dict[str, tuple[int, int]]:
    return {stream.name: (stream.bits, stream.values) for stream in report.streams}


def test_equally_spaced_levels(coded: Path) -> None:
    report = inspect_stages(coded, "normal")
    grid = facts(report, "level_grid")
    assert grid["levels"] == "equally spaced"
    assert grid["low bits"]
    assert facts(report, "tile_svd") == {"rank": 0}
    assert facts(report, "channel_outlier") == {"escapes": 8, "escape share": "0.0781%"}
    bound = facts(report, "error_bound")
    assert bound["error allowed"] == "0.004"
    assert 0.002 < float(bound["error"]) <= 0.004
    assert float(bound["error"]) == pytest.approx(report.tensor.error, rel=1e-5)
    step = float(bound["smallest step"])
    assert step == float(bound["largest step"]) == pytest.approx(0.02 * 0.004 * 12**0.5, rel=0.1)
    assert float(bound["largest error of a weight"]) == pytest.approx(step / 2, rel=0.1)
    assert bound["chunks of escapes alone"] == 0
    words = SHAPE[0] * SHAPE[1]
    assert streams(report) == {
        "symbol": (8, words),
        "low": (grid["low bits"], words),
        "escape": (32, 8),
    }


def test_a_spacing_that_was_asked_for_in_vain(coded: Path) -> None:
    grid = facts(inspect_stages(coded, "asked"), "level_grid")
    assert grid["levels"] == "equally spaced: no table by lloyd keeps the bound"


def test_the_histogram_is_of_levels(coded: Path) -> None:
    report = inspect_stages(coded, "normal")
    limit = int(facts(report, "level_grid")["symbols (limit)"])
    width = 1 << int(facts(report, "level_grid")["low bits"])
    labels = [label for label, _ in report.histogram]
    assert len(labels) == limit + 1
    assert labels[limit // 2] == f"0 to {width - 1}"
    assert labels[0] == f"{-limit * width // 2} to {-limit * width // 2 + width - 1}"
    counts = np.array([count for _, count in report.histogram])
    assert counts.sum() == SHAPE[0] * SHAPE[1]
    assert report.histogram[-1] == ("escape", 8)
    assert np.argmax(counts) in (limit // 2 - 1, limit // 2)


def test_the_entropy_is_that_of_the_symbols(coded: Path) -> None:
    report = inspect_stages(coded, "normal")
    symbol = report.streams[0]
    share = np.array([count for _, count in report.histogram if count]) / symbol.values
    assert symbol.entropy_bits == pytest.approx(-(share * np.log2(share)).sum())
    assert symbol.entropy_bits < symbol.coded_bits < symbol.entropy_bits + 0.1
    assert report.bits_per_element_bound < report.bits_per_element_coded < 10


def test_a_table_of_levels(coded: Path) -> None:
    report = inspect_stages(coded, "few")
    grid = facts(report, "level_grid")
    assert (grid["levels"], grid["low bits"]) == ("a table of 3", 0)
    labels = [label for label, _ in report.histogram]
    assert labels[1] == "0"
    assert int(labels[0]) < 0 < int(labels[2])
    assert labels[3:] == ["escape"]


def test_low_rank_factors(coded: Path) -> None:
    report = inspect_stages(coded, "factors")
    assert facts(report, "tile_svd") == {
        "rank": 1,
        "tile": "160 x 64",
        "tiles": 1,
        "factor bytes before zstd": 160 + 64 + 2,
    }


def test_chunks_without_a_step(coded: Path) -> None:
    report = inspect_stages(coded, "kept")
    assert facts(report, "error_bound")["chunks of escapes alone"] == 1
    assert facts(report, "channel_outlier")["escapes"] == report.histogram[-1][1] >= 3456


def test_the_header_says_the_mode(coded: Path) -> None:
    report = inspect_header(coded)
    assert (report.mode, report.epsilon) == ("bounded", 0.004)
    assert {row.epsilon for row in report.tensors} == {0.004}
    assert all(0 <= row.error <= 0.004 for row in report.tensors)
