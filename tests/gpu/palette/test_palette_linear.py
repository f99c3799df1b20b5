"""Layers choose between ways to multiply that agree; what was measured is remembered."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.support.blas import blas_of
from tests.gpu.support.devices import Device
from tests.gpu.support.matrices import gaussian
from tests.gpu.support.palette_model import narrowed, widened
from tests.gpu.support.seeded import Seeded
from unweight_codecs.errors import UsageError
from unweight_gpu import kernels
from unweight_gpu.device.timing import Work
from unweight_gpu.palette.format import Layout
from unweight_gpu.palette.linear import LinearBackend, PaletteLinear
from unweight_gpu.palette.measurements import (
    MeasuredChooser,
    Measurements,
    cache_file,
    kernel_hash,
    key_of,
)
from unweight_gpu.palette.strategy import BUCKETS, Strategy, bucket_of, default, usable
from unweight_gpu.palette.tuning import tune

ALL = frozenset(Strategy)
PALETTE = frozenset({Strategy.FUSED, Strategy.EXPANDED})
WORDS = frozenset({Strategy.BF16})
DEVICE = "a device, driver 1"


@pytest.fixture
def backend(device: Device) -> LinearBackend:
    """Return a backend with the BLAS of the device."""
    return LinearBackend(Seeded(device), blas_of(device))


class FakeTimer:
    """Takes the time of a strategy from a table, and runs it once."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = list(times)
        self.calls = 0

    def samples(self, runs: Sequence[Work]) -> Sequence[float]:
        assert len(runs) == 16  # matrices this small stay in a cache, whatever is done
        runs[-1]()
        self.calls += 1
        median = self.times[(self.calls - 1) % len(self.times)]
        return [median, 5 * median, median / 2]


# ---- Layers


@pytest.mark.parametrize("batch", [1, 3, 16, 40])
def test_all_ways_agree(backend: LinearBackend, batch: int) -> None:
    words = gaussian(24, 600)
    words[3, 5] = 0x4321  # an escape
    x = narrowed(np.random.default_rng(2).standard_normal((batch, 600)))
    layer = backend.linear(backend.device.array(words), keep_words=True)
    exact = widened(x).astype(np.float64) @ widened(words).astype(np.float64).T
    size = np.abs(widened(x)).astype(np.float64) @ np.abs(widened(words)).astype(np.float64).T
    for strategy in usable(batch, layer.held):
        given = backend.device.array(x)
        full = backend.device.to_host(layer.matmul(given, strategy=strategy))
        assert (np.abs(full - exact) <= size * 2.0**-16).all()
        half = backend.device.to_host(layer.matmul(given, "BF16", strategy=strategy))
        assert (np.abs(widened(half) - exact) <= size * 2.0**-16 + np.abs(exact) * 2.0**-8).all()
    chosen = backend.device.to_host(layer.matmul(backend.device.array(x)))
    assert chosen.shape == (batch, 24)


def test_expanded_words_are_the_weights(backend: LinearBackend) -> None:
    for shape in ((9, 100), (4, 33), (30, 64)):  # the same scratch memory for all of them
        words = gaussian(*shape)
        layer = backend.linear(backend.device.array(words))
        assert layer.palette is not None
        scratch = backend.codec.expand(layer.palette, backend.scratch(layer.layout))
        assert np.array_equal(backend.device.to_host(scratch), words)
        identity = backend.device.array(narrowed(np.eye(shape[1])))
        result = layer.matmul(identity, "BF16", strategy=Strategy.EXPANDED)
        assert np.array_equal(backend.device.to_host(result).T, words)


def test_a_layer_holds_what_it_is_told_to(backend: LinearBackend) -> None:
    words = backend.device.array(gaussian(8, 64))
    plain, both = backend.linear(words), backend.linear(words, keep_words=True)
    assert plain.held == PALETTE
    assert plain.palette is not None
    assert plain.nbytes == plain.palette.nbytes
    assert both.held == ALL
    assert both.nbytes == plain.nbytes + 2 * 8 * 64
    refused = backend.linear(backend.device.array(np.full((8, 64), 0x7F80, np.uint16)))
    assert refused.held == WORDS
    assert "outside the window" in refused.reason
    x = backend.device.array(np.full((2, 64), 0x3F80, np.uint16))
    assert (backend.device.to_host(refused.matmul(x)) == np.inf).all()
    with pytest.raises(UsageError, match="one of bf16"):
        refused.matmul(x, strategy=Strategy.FUSED)
    many = backend.device.array(np.full((17, 64), 0x3F80, np.uint16))
    with pytest.raises(UsageError, match="no fused product of 17 rows here"):
        plain.matmul(many, strategy=Strategy.FUSED)
    with pytest.raises(UsageError, match="a palette or plain words"):
        PaletteLinear(backend, Layout(8, 64))
    nothing = plain.matmul(backend.device.empty((0, 64), np.uint16))
    assert nothing.shape == (0, 8)


# ---- Choices


def test_every_batch_has_a_bucket() -> None:
    assert [bucket_of(n) for n in (1, 2, 3, 5, 16, 17, 1000, 5000)] == [
        1,
        2,
        4,
        8,
        16,
        32,
        1024,
        1024,
    ]
    assert list(BUCKETS) == sorted(BUCKETS)


@pytest.mark.parametrize("batch", [1, 8, 9, 16, 17, 100_000])
@pytest.mark.parametrize("shape", [(1, 1), (1024, 1024), (14336, 4096)])
def test_the_table_has_a_choice_for_everything(shape: tuple[int, int], batch: int) -> None:
    layout = Layout(*shape)
    for held in (ALL, PALETTE, WORDS):
        assert default(layout, batch, held) in usable(batch, held)


def test_defaults() -> None:
    large = Layout(4096, 4096)
    assert default(large, 1, ALL) is Strategy.FUSED
    assert default(large, 16, ALL) is Strategy.BF16
    assert default(large, 16, PALETTE) is Strategy.FUSED
    assert default(large, 17, PALETTE) is Strategy.EXPANDED
    assert default(Layout(128, 128), 1, ALL) is Strategy.BF16


def test_measurements_beat_the_table(tmp_path: Path) -> None:
    layout = Layout(4096, 4096)
    found = Measurements(tmp_path / "none")
    found.seconds[key_of(DEVICE, layout, 4)] = {
        Strategy.BF16: 2e-6,
        Strategy.FUSED: 3e-6,
        Strategy.EXPANDED: 1e-6,
    }
    chooser = MeasuredChooser(DEVICE, found)
    assert chooser.best(layout, 4, ALL) is Strategy.EXPANDED
    assert chooser.best(layout, 3, ALL) is Strategy.EXPANDED  # the same bucket
    assert chooser.best(layout, 4, WORDS) is Strategy.BF16
    assert chooser.best(layout, 2, ALL) is Strategy.FUSED  # not measured
    assert chooser.best(Layout(4096, 4097), 4, ALL) is Strategy.FUSED
    assert MeasuredChooser("another", found).best(layout, 4, ALL) is Strategy.FUSED


# ---- Tuning


def test_tuning_measures_once(backend: LinearBackend, tmp_path: Path) -> None:
    file, timer = tmp_path / "deep" / "tuning.json", FakeTimer([3e-6, 1e-6, 2e-6])
    shapes = [(8, 64), (16, 32), (8, 64)]
    report = tune(shapes, [1, 3, 4, 20], backend, timer, DEVICE, file)
    assert report.notes == ()
    assert report.device == DEVICE
    assert {(row.rows, row.columns) for row in report.rows} == {(8, 64), (16, 32)}
    found = [(row.rows, row.batch, row.cached) for row in report.rows]
    assert found == [(rows, batch, False) for rows in (8, 16) for batch in (1, 4, 32)]
    assert [len(row.seconds) for row in report.rows] == [3, 3, 2] * 2
    assert report.rows[0].best == Strategy.FUSED
    assert timer.calls == 16
    again = tune(shapes, [1, 4, 32], backend, timer, DEVICE, file)
    assert timer.calls == 16
    assert all(row.cached for row in again.rows)
    assert [row.seconds for row in again.rows] == [row.seconds for row in report.rows]
    tune([(8, 64)], [1], backend, timer, "another driver", file)
    assert timer.calls == 19
    assert sorted(path.name for path in file.parent.iterdir()) == ["tuning.json"]
    chooser = MeasuredChooser(DEVICE, Measurements.load(file))
    assert chooser.best(Layout(8, 64), 1, ALL) is Strategy.FUSED


PutVersion = Callable[[str], list[str]]


@pytest.fixture
def put_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[PutVersion]:
    """Return a function that puts kernels of a version in place; it returns which are read."""

    def put(version: str) -> list[str]:
        read = list[str]()

        def source(name: str) -> str:
            read.append(name)
            return version + name

        monkeypatch.setattr(kernels, "source", source)
        kernel_hash.cache_clear()  # another version is another process
        return read

    yield put
    kernel_hash.cache_clear()


def test_other_kernels_are_measured_anew(put_version: PutVersion, tmp_path: Path) -> None:
    layout, found = Layout(4096, 4096), Measurements(tmp_path / "none")
    chooser = MeasuredChooser(DEVICE, found)
    put_version("first")
    found.seconds[key_of(DEVICE, layout, 1)] = {Strategy.BF16: 1e-6}
    for version, best in (("first", Strategy.BF16), ("second", Strategy.FUSED)):
        put_version(version)
        assert chooser.best(layout, 1, ALL) is best


def test_choices_read_the_kernels_once(put_version: PutVersion, tmp_path: Path) -> None:
    read = put_version("first")
    chooser = MeasuredChooser(DEVICE, Measurements(tmp_path / "none"))
    for batch in range(1, 9):
        chooser.best(Layout(8, 64), batch, ALL)
    assert sorted(read) == ["gemm", "palette"]


GOOD = {"version": 1, "seconds": {"key": {"bf16": 1e-6}}}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"version": 1',
        json.dumps({**GOOD, "version": 2}).encode(),
        json.dumps({**GOOD, "seconds": []}).encode(),
        json.dumps({**GOOD, "seconds": {"key": 5}}).encode(),
        json.dumps({**GOOD, "seconds": {"key": {}}}).encode(),
        json.dumps({**GOOD, "seconds": {"key": {"magic": 1.0}}}).encode(),
        json.dumps({**GOOD, "seconds": {"key": {"bf16": -1.0}}}).encode(),
        json.dumps({**GOOD, "seconds": {"key": {"bf16": True}}}).encode(),
        json.dumps({**GOOD, "seconds": {"key": {"bf16": "1"}}}).encode(),
        json.dumps({**GOOD, "seconds": {"key": {"bf16": float("nan")}}}).encode(),
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_ignored_with_a_note(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tuning.json"
    file.write_bytes(content)
    found = Measurements.load(file)
    assert found.seconds == {}
    assert len(found.notes) == 1
    assert found.notes[0].startswith(f"{file}: ignored: ")
    found.seconds["key"] = {Strategy.BF16: 1e-6}
    found.save()
    assert Measurements.load(file).seconds == {"key": {Strategy.BF16: 1e-6}}
    assert json.loads(file.read_text()) == GOOD


def test_a_missing_file_is_no_news(tmp_path: Path) -> None:
    assert Measurements.load(tmp_path / "none").notes == []


def test_a_cache_that_cannot_be_written_is_a_note(backend: LinearBackend, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    target = tmp_path / "file" / "tuning.json"
    report = tune([(8, 64)], [1], backend, FakeTimer([1e-6]), DEVICE, target)
    assert len(report.rows) == 1
    assert "measurements are not kept" in report.notes[-1]


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "unweight" / "tuning.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_file() == tmp_path / ".cache" / "unweight" / "tuning.json"


def test_a_device_can_be_kept_busy(device: Device) -> None:
    device.load(kernels.source("idle")).get_function("idle")((1,), (1,), (np.uint32(100),))
    assert device.to_host(device.array(np.ones(1))) == 1
