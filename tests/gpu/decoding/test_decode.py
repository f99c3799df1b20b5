"""The decoding kernels: the same bits as the processor, for every dtype, model and schedule."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gpu.support.decoding import Coded, code, decode, lossless
from tests.gpu.support.devices import Device
from tests.gpu.support.matrices import SHAPE, weights
from tests.gpu.support.seeded import SEEDS, Seeded
from unweight_codecs.bounded.channel_outlier import ChannelOutlier
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.float_words import FLOATS, words_of_values
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.tile_svd import TileSvd
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import pipeline_of
from unweight_codecs.presets import BOUNDED, PRESETS
from unweight_codecs.tensor_spec import TensorSpec, dtype_named

WORD_FLOATS = ("BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2")
OTHERS = ("I8", "U16", "I32", "I64", "F6_E2M3", "F4", "F8_E8M0", "C64")


@pytest.fixture
def seeded(device: Device) -> Seeded:
    """Return the device with the first seed."""
    return Seeded(device)


def assert_exact(device: Seeded, coded: Coded, original: Bytes | None = None) -> None:
    expected = coded.on_host() if original is None else original
    words, status = decode(device, coded)
    assert not status.any()
    np.testing.assert_array_equal(words, expected)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", [*WORD_FLOATS, *OTHERS])
def test_every_dtype_and_preset(seeded: Seeded, dtype: str, preset: str) -> None:
    data = weights(dtype, SHAPE)
    assert_exact(seeded, code(PRESETS[preset], TensorSpec("t", dtype, SHAPE), data), data)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("classes", [1, 2, 8, 16])
@pytest.mark.parametrize("top_bits", [0, 1, 2, 3])
def test_every_m_and_k(device: Device, top_bits: int, classes: int, seed: int) -> None:
    data = weights("BF16", (128, 160), spread=4)
    coded = code(lossless(top_bits, classes), TensorSpec("t", "BF16", (128, 160)), data)
    assert (coded.model.context_map is not None) == (classes > 1)
    assert coded.model.top_bits == top_bits
    assert_exact(Seeded(device, seed), coded, data)


@pytest.mark.parametrize("classes", [1, 8])
@pytest.mark.parametrize("dtype", WORD_FLOATS)
def test_every_split_of_every_float(seeded: Seeded, dtype: str, classes: int) -> None:
    data = weights(dtype, (128, 148), spread=3)
    spec = TensorSpec("t", dtype, (128, 148))
    for top_bits in range(min(3, dtype_named(dtype).mantissa_bits) + 1):
        assert_exact(seeded, code(lossless(top_bits, classes), spec, data), data)


@pytest.mark.parametrize("dtype", WORD_FLOATS)
def test_every_pattern_of_bits(seeded: Seeded, dtype: str) -> None:
    size = dtype_named(dtype).bits // 8
    patterns = np.random.default_rng(2).integers(0, 256, 1 << 17, np.uint8)
    if size <= 2:
        patterns = np.arange(1 << 8 * size, dtype=f"<u{size}").view(np.uint8)
    spec = TensorSpec("t", dtype, (patterns.size // size,))
    for preset in ("fast", "default"):
        assert_exact(seeded, code(PRESETS[preset], spec, patterns), patterns)


@pytest.mark.parametrize("dtype", ["BF16", "F32", "I16", "F8_E4M3"])
def test_constant_and_sparse_words(seeded: Seeded, dtype: str) -> None:
    spec = TensorSpec("t", dtype, SHAPE)
    data = weights(dtype, SHAPE)
    size = data.size // (SHAPE[0] * SHAPE[1])
    sparse = data.reshape(-1, size).copy()
    sparse[np.random.default_rng(1).random(len(sparse)) < 0.9] = 0
    for words in (np.zeros_like(data), np.full_like(data, 7), sparse.reshape(-1)):
        assert_exact(seeded, code(PRESETS["default"], spec, words), words)


@pytest.mark.parametrize("spacing", ["uniform", "cdf", "lloyd"])
@pytest.mark.parametrize("epsilon", [0.001, 0.05, 0.3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_levels(seeded: Seeded, dtype: str, epsilon: float, spacing: str) -> None:
    data = weights(dtype, SHAPE, spread=0.5)
    stages = (ChannelOutlier(), LevelGrid(spacing), TileSvd(), ErrorBound(), Pack(12))
    assert_exact(
        seeded, code(pipeline_of("test", stages), TensorSpec("t", dtype, SHAPE), data, epsilon)
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_levels_on_low_rank_factors(seeded: Seeded, dtype: str) -> None:
    rng = np.random.default_rng(3)
    values = np.outer(rng.standard_normal(130), rng.standard_normal(150))
    values += 0.05 * rng.standard_normal(values.shape)
    data = words_of_values(values.astype(np.float32).reshape(-1), dtype)
    coded = code(BOUNDED["max"], TensorSpec("t", dtype, values.shape), data, 0.02)
    assert_exact(seeded, coded)


@pytest.mark.parametrize("dtype", FLOATS)
def test_levels_with_outliers_kept(seeded: Seeded, dtype: str) -> None:
    data = weights(dtype, SHAPE)
    stages = (ChannelOutlier(2.0), LevelGrid(), TileSvd(), ErrorBound(), Pack(12))
    pipeline = pipeline_of("test", stages)
    assert_exact(seeded, code(pipeline, TensorSpec("t", dtype, SHAPE), data, 0.1))


def test_many_tables_make_many_teams(seeded: Seeded) -> None:
    """Chunks of different tables and coders, in one launch."""
    parts = [weights("BF16", (32, 128), seed, spread=0) for seed in range(11)]
    for number, part in enumerate(parts):
        part.view("<u2")[:] += np.uint16((number % 5) << 7)
    data = np.concatenate([*parts, np.zeros(8192, np.uint8)])
    spec = TensorSpec("t", "BF16", (data.size // 2,))
    coded = code(lossless(1, tables=8), spec, data)
    assert len(coded.model.tables["symbol"]) > 2
    assert_exact(seeded, coded, data)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    dtype=st.sampled_from((*WORD_FLOATS, "I8", "I32")),
    rows=st.integers(1, 40),
    columns=st.integers(1, 500),
    preset=st.sampled_from(list(PRESETS)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size_and_schedule(
    device: Device, dtype: str, rows: int, columns: int, preset: str, seed: int
) -> None:
    shape = (max(1, rows), max(4, columns))
    data = weights(dtype, shape, seed % 1000)
    assert_exact(
        Seeded(device, seed), code(PRESETS[preset], TensorSpec("t", dtype, shape), data), data
    )
