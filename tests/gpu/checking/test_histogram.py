"""Histograms on a device: exact counts under every schedule, and nothing beyond a buffer."""

import numpy as np
import pytest

from tests.gpu.support.devices import Device
from tests.gpu.support.seeded import SEEDS, Seeded
from unweight_codecs.errors import UsageError
from unweight_codecs.kernels.reference import ReferenceKernels
from unweight_gpu.checking.histogram import Histogram


@pytest.fixture(params=SEEDS)
def seeded(device: Device, request: pytest.FixtureRequest) -> Seeded:
    """Return the device with one of the seeds."""
    return Seeded(device, request.param)


@pytest.fixture
def unseeded(device: Device) -> Seeded:
    """Return the device with the first seed, for tests that are not about the order of threads."""
    return Seeded(device)


@pytest.fixture
def histogram(seeded: Seeded) -> Histogram:
    """Return the kernel under test."""
    return Histogram(seeded)


FIELDS = [(0, 1), (0, 4), (0, 8), (3, 5), (7, 8), (10, 6), (20, 11), (31, 13), (52, 11), (49, 14)]
CASES = [(size, shift, bits) for size in (1, 2, 4, 8) for shift, bits in FIELDS if shift < 8 * size]


@pytest.mark.parametrize(("size", "shift", "bits"), CASES)
def test_histogram(seeded: Seeded, histogram: Histogram, size: int, shift: int, bits: int) -> None:
    for count in (0, 1, 16 // size, 16 // size + 1, 5003):
        words = (
            np.random.default_rng(count).integers(0, 256, count * size, np.uint8).view(f"<u{size}")
        )
        for block in (0, 16, 64):
            found = histogram.count(seeded.array(words), shift, bits, block)
            expected = ReferenceKernels().histogram(words, shift, bits, block)
            assert found.dtype == np.uint32
            assert np.array_equal(found, expected)


def test_histogram_of_many_threads(unseeded: Seeded) -> None:
    """Few values, which many threads count at once, and more words than a launch takes at once."""
    random = np.random.default_rng(0)
    words = (random.standard_normal((9 << 20) // 4) * 0.02).astype(np.float32).view("<u4")
    array, histogram = unseeded.array(words), Histogram(unseeded)
    for shift, bits, block in ((23, 8, 0), (20, 11, 4096), (31, 1, 0)):
        found = histogram.count(array, shift, bits, block)
        assert np.array_equal(found, ReferenceKernels().histogram(words, shift, bits, block))


@pytest.mark.parametrize(
    ("dtype", "shift", "bits", "block"),
    [
        ("<u2", 16, 1, 0),
        ("<u2", -1, 1, 0),
        ("<u2", 0, 15, 0),
        ("<u2", 0, 0, 0),
        ("<u2", 0, 8, 4),  # 8 bytes
        ("<u2", 0, 8, 24),
        ("<u2", 0, 8, -16),
        ("<c16", 0, 8, 0),
    ],
)
def test_histograms_that_are_not_defined(
    unseeded: Seeded, dtype: str, shift: int, bits: int, block: int
) -> None:
    words = unseeded.array(np.zeros(64, dtype))
    with pytest.raises(UsageError, match=r"^no histogram of"):
        Histogram(unseeded).count(words, shift, bits, block)


def test_histogram_of_misaligned_words(unseeded: Seeded) -> None:
    words = unseeded.array(np.zeros(64, "<u2"))
    with pytest.raises(UsageError, match="must begin at a multiple of 16"):
        Histogram(unseeded).count(words[1:], 0, 8)
