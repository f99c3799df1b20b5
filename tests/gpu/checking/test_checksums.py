"""XXH3 on the device against the xxhash package: all classes of lengths, alignments, schedules."""

import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray

from tests.gpu.support.devices import Device
from tests.gpu.support.seeded import SEEDS, Seeded
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_gpu import kernels
from unweight_gpu.checking import checksums
from unweight_gpu.checking.checksums import Checksums

Bytes = NDArray[np.uint8]
Ranges = NDArray[np.uint64]
LENGTHS = np.arange(2101)
RANDOM = np.random.default_rng(0)
DATA = RANDOM.integers(0, 256, (3 << 20) + 13, np.uint8)


@pytest.fixture(params=SEEDS)
def seeded(device: Device, request: pytest.FixtureRequest) -> Seeded:
    """Return the device with one of the seeds; buffers end exactly where memory does."""
    return Seeded(device, request.param, alignment=1)


def pairs(offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> Ranges:
    return np.stack([offsets, lengths], axis=1).astype(np.uint64)


def expected(data: Bytes, ranges: Ranges) -> list[int]:
    return [
        xxhash.xxh3_64_intdigest(data[offset : offset + length].data)
        for offset, length in ranges.tolist()
    ]


@pytest.mark.parametrize("start", [0, 1, 4, 7])
@pytest.mark.parametrize("long", [False, True])
def test_every_length(
    seeded: Seeded, monkeypatch: pytest.MonkeyPatch, start: int, long: bool
) -> None:
    if long:  # the two steps that are for long ranges are right for all that are not empty
        monkeypatch.setattr(checksums, "LONG", 1)
    data = np.concatenate([DATA[: start + 8 * LENGTHS[-1]], DATA[-2100:]])
    array = Seeded(seeded.device, seeded.seed, alignment=16).array(data)
    ranges = pairs(start + 8 * LENGTHS, LENGTHS)
    assert Checksums(seeded).digests(array, ranges).tolist() == expected(data, ranges)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 5000])
def test_ranges_that_are_the_whole_buffer(
    seeded: Seeded, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    data = DATA[:length]
    ranges = np.array([[0, length]], np.uint64)
    found = Checksums(seeded).digests(seeded.array(data), ranges)
    assert found.tolist() == expected(data, ranges)
    if length > 1024:
        monkeypatch.setattr(checksums, "LONG", 1)
        found = Checksums(seeded).digests(seeded.array(data), ranges)
        assert found.tolist() == expected(data, ranges)


def test_short_and_long_ranges(seeded: Seeded) -> None:
    lengths = np.array([1 << 20, 200_001, (1 << 20) + 1, 0, 1_500_000, (1 << 20) - 1, 2_000_000])
    offsets = np.array([0, 5, 1 << 20, DATA.size, 16, 1024, 3])
    ranges = pairs(np.append(offsets, 0), np.append(lengths, DATA.size))
    found = Checksums(seeded).digests(seeded.array(DATA), ranges)
    assert found.tolist() == expected(DATA, ranges)


def test_random_ranges_of_words(seeded: Seeded) -> None:
    """A buffer need not be one of bytes."""
    data = DATA[: 1 << 18]
    offsets = RANDOM.integers(0, data.size, 64)
    lengths = RANDOM.integers(0, data.size - offsets + 1)
    ranges = pairs(offsets, lengths)
    found = Checksums(seeded).digests(seeded.array(data.view("<u4")), ranges)
    assert found.tolist() == expected(data, ranges)


@pytest.mark.parametrize("flip", [0, 63, 64, 1023, 1024, 4095, 4999])
def test_a_flipped_bit_changes_the_digest(device: Device, flip: int) -> None:
    seeded = Seeded(device)
    data = DATA[:5000].copy()
    ranges = np.array([[0, 5000]], np.uint64)
    before = Checksums(seeded).digests(seeded.array(data), ranges)
    data[flip] ^= 0x10
    after = Checksums(seeded).digests(seeded.array(data), ranges)
    assert before != after
    assert after.tolist() == expected(data, ranges)


def test_no_ranges(device: Device) -> None:
    seeded = Seeded(device)
    found = Checksums(seeded).digests(seeded.array(DATA[:8]), np.zeros((0, 2), np.uint64))
    assert found.dtype == np.uint64
    assert found.size == 0


# ---- Bad input

WRONG = [(1, 4096), (4097, 0), (4096, 1), (2**64 - 1, 2), (8, 2**64 - 8), (2**63, 2**63), (0, 4097)]


@pytest.mark.parametrize(("offset", "length"), WRONG)
def test_ranges_outside_of_the_buffer(seeded: Seeded, offset: int, length: int) -> None:
    array = seeded.array(DATA[:4096])
    ranges = np.array([[0, 4096], [offset, length]], np.uint64)
    message = f"^range 1, {length} bytes from {offset}, is not in the 4096 bytes of the buffer$"
    with pytest.raises(IntegrityError, match=message):
        Checksums(seeded).digests(array, ranges)


@pytest.mark.parametrize(
    "ranges",
    [np.zeros((3, 2), np.int64), np.zeros((3, 3), np.uint64), np.zeros(4, np.uint64)],
)
def test_what_is_no_range(device: Device, ranges: Ranges) -> None:
    seeded = Seeded(device)
    with pytest.raises(UsageError, match=r"^ranges are pairs of uint64"):
        Checksums(seeded).digests(seeded.array(DATA[:8]), ranges)


def test_a_buffer_with_gaps(device: Device) -> None:
    seeded = Seeded(device)
    data = seeded.array(DATA[:64])
    with pytest.raises(UsageError, match="the buffer must be contiguous"):
        Checksums(seeded).digests(data[::2], np.array([[0, 32]], np.uint64))


def random_ranges(random: np.random.Generator, count: int, total: int) -> Ranges:
    """Ranges of which many are good and some are absurd, in every way."""
    ranges = pairs(random.integers(0, total, count), random.integers(0, total, count))
    ranges[: count // 2, 1] %= np.uint64(total) - ranges[: count // 2, 0] + np.uint64(1)
    absurd = random.random(ranges.shape) < 0.2
    bits = random.integers(0, 64, ranges.shape).astype(np.uint64)
    ranges[absurd] = (random.integers(0, 2**63, ranges.shape).astype(np.uint64) >> bits)[absurd]
    absurd = random.random(ranges.shape) < 0.05
    ranges[absurd] = ~ranges[absurd]
    return ranges


@pytest.mark.parametrize("seed", range(8))
def test_random_descriptors(device: Device, seed: int) -> None:
    """Kernels without the checks of their host: a code for each range, and no step beyond."""
    random = np.random.default_rng(seed)
    seeded = Seeded(device, seed, alignment=1)
    module = seeded.load(kernels.source("xxh3"))
    total, count = int(random.integers(1, 20_000)), 40
    data = DATA[:total]
    ranges = random_ranges(random, count, total)
    good = [offset <= total and length <= total - offset for offset, length in ranges.tolist()]
    places = (seeded.array(data), np.uint64(total), seeded.array(ranges))
    digests, codes = seeded.empty(count, np.uint64), seeded.empty(count, np.uint32)
    module.get_function("xxh3_ranges")(
        (count // 4,), (128,), (*places, np.uint32(count), digests, codes)
    )
    assert seeded.to_host(codes).tolist() == [0 if is_good else 1 for is_good in good]
    found = seeded.to_host(digests)
    assert found[good].tolist() == expected(data, ranges[good])
    assert not found[np.logical_not(good)].any()


@pytest.mark.parametrize("seed", range(8))
def test_random_descriptors_of_long_ranges(device: Device, seed: int) -> None:
    random = np.random.default_rng(seed)
    seeded = Seeded(device, seed, alignment=1)
    module = seeded.load(kernels.source("xxh3"))
    total, count = int(random.integers(1, 20_000)), 40
    ranges = random_ranges(random, count, total)
    own = (np.minimum(ranges[:, 1], total).astype(np.int64) - 1).clip(0) // 1024
    firsts = (np.cumsum(own) - own).astype(np.uint64)
    blocks = max(1, int(own.sum()))
    wrong = random.random(count) < 0.3 * (seed % 2)
    firsts[wrong] = random.integers(0, 2**63, count).astype(np.uint64)[wrong] >> np.uint64(seed * 7)
    buffer = (seeded.array(DATA[:total]), np.uint64(total))
    places = (*buffer, seeded.array(ranges), seeded.array(firsts))
    sums = seeded.empty((blocks, 8), np.uint64)
    digests, codes = seeded.empty(count, np.uint64), seeded.empty(count, np.uint32)
    grid = (-(-blocks // 64),)
    module.get_function("xxh3_blocks")(
        grid, (128,), (*places, np.uint32(count), np.uint64(blocks), sums)
    )
    module.get_function("xxh3_chains")(
        (count,), (32,), (*places, np.uint64(blocks), sums, digests, codes)
    )
    for (offset, length), first, code, digest in zip(
        ranges.tolist(),
        firsts.tolist(),
        seeded.to_host(codes).tolist(),
        seeded.to_host(digests).tolist(),
        strict=True,
    ):
        whole = (length - 1) // 1024 if length > 240 else 0
        outside = offset > total or length > total - offset
        expected_code = 1 if outside else 2 if first > blocks or whole > blocks - first else 0
        assert code == expected_code
        if code:
            assert digest == 0
        elif not wrong.any():
            assert digest == xxhash.xxh3_64_intdigest(DATA[offset : offset + length].data)
