"""Palettes: every BF16 pattern survives, kernels agree with NumPy, and nothing leaves a buffer."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.support.devices import Device
from tests.gpu.support.matrices import ARRAYS, encoded, gaussian, mixed, on_device
from tests.gpu.support.seeded import SEEDS, Seeded
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_gpu.device.interface import Array
from unweight_gpu.palette import reference
from unweight_gpu.palette.codec import STATUSES, PaletteCodec
from unweight_gpu.palette.format import Layout, Palette, Refusal, best_base

Words = NDArray[np.uint16]
SHAPES = [(1, 1), (1, 16), (3, 17), (5, 33), (2, 8), (9, 24), (4, 1000), (2, 1032), (3, 2049)]


@pytest.fixture(params=SEEDS)
def seeded(device: Device, request: pytest.FixtureRequest) -> Seeded:
    """Return the device with one of the seeds."""
    return Seeded(device, request.param)


@pytest.fixture
def codec(seeded: Seeded) -> PaletteCodec:
    """Return the kernels under test."""
    return PaletteCodec(seeded)


# ---- The format


@pytest.mark.parametrize("base", [None, 1, 2, 100, 120, 127, 128, 129, 239, 240])
def test_every_pattern_survives(base: int | None) -> None:
    words = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 64)
    assert np.array_equal(reference.decode(encoded(words, base)), words)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: tuple[int, int]) -> None:
    words = mixed(*shape)
    assert np.array_equal(reference.decode(encoded(words)), words)


def test_the_bits_are_where_the_format_says() -> None:
    words = np.array([[0x3F80, 0xBF81, 0x0000, 0x8000, 0x3F7F, 0x7F80, 0x3F82, 0x3880]], np.uint16)
    palette = encoded(words, 113)  # 2^-14; 0x3880 is 2^-14, 0x3f80 is 1
    assert palette.sm.tolist() == [0, 0x81, 0, 0x80, 0x7F, 0, 2, 0] + [0] * 8
    shifts = (0, 16, 4, 20, 8, 24, 12, 28)
    nibbles = [15, 15, 0, 0, 14, 0, 15, 1]
    expected = sum(value << shift for value, shift in zip(nibbles, shifts, strict=True))
    assert palette.nibbles.tolist() == [expected, 0]
    assert palette.row_ptr.tolist() == [0, 1]
    assert palette.escapes.tolist() == [0x7F800005]


def test_weights_take_twelve_bits() -> None:
    palette = reference.encode(gaussian(256, 4096))
    assert isinstance(palette, Palette)
    measured = sum(getattr(palette, name).nbytes for name in ARRAYS)
    assert palette.nbytes == measured
    assert 12 < palette.bits_per_weight < 12.03


def test_the_base_holds_most_weights() -> None:
    counts = np.zeros(256, np.uint32)
    counts[[0, 255]] = 1000  # zeros and infinities are never in a window
    assert best_base(counts) == 1
    counts[[30, 44, 45]] = 5, 5, 6
    assert best_base(counts) == 31
    counts[45] = 5
    assert best_base(counts) == 30


def test_what_does_not_pay_is_refused() -> None:
    words = np.full((10, 1000), 0x3F80, np.uint16)
    words[:, :20] = 0x7F80
    assert isinstance(reference.encode(words), Palette)
    words[0, 20] = 0x7F80
    refused = reference.encode(words)
    assert isinstance(refused, Refusal)
    assert refused.reason.startswith("2.0% of the weights")
    refused = reference.encode(np.zeros((1, 70000), np.uint16))
    assert isinstance(refused, Refusal)
    assert "65536" in refused.reason
    for shape in ((0, 5), (5, 0)):
        with pytest.raises(UsageError, match="no palette"):
            Layout(*shape)
    for base in (0, 241, -1):
        with pytest.raises(UsageError, match="no palette begins"):
            reference.encode(words, base)


# ---- Kernels


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_agree_with_the_reference(
    seeded: Seeded, codec: PaletteCodec, shape: tuple[int, int]
) -> None:
    words = mixed(*shape, seed=seeded.seed)
    expected = encoded(words)
    palette = codec.encode(seeded.array(words), max_escapes=1)
    assert isinstance(palette, Palette)
    assert palette.base == expected.base
    for name in ARRAYS:
        assert np.array_equal(seeded.to_host(getattr(palette, name)), getattr(expected, name)), name
    assert np.array_equal(seeded.to_host(codec.expand(palette)), words)
    codec.check(palette)


@pytest.mark.parametrize("base", [1, 113, 128, 240])
@pytest.mark.parametrize("cols", [64, 77])
def test_kernels_keep_every_pattern(
    seeded: Seeded, codec: PaletteCodec, base: int, cols: int
) -> None:
    words = np.resize(np.arange(1 << 16, dtype=np.uint16), (-(-(1 << 16) // cols), cols))
    palette = codec.encode(seeded.array(words), base, max_escapes=1)
    assert isinstance(palette, Palette)
    assert np.array_equal(seeded.to_host(palette.escapes), encoded(words, base).escapes)
    assert np.array_equal(seeded.to_host(codec.expand(palette)), words)


def test_kernels_refuse_what_does_not_pay(seeded: Seeded, codec: PaletteCodec) -> None:
    words = gaussian(10, 1000)
    words[:, :30] = 0x7F80
    refused = codec.encode(seeded.array(words))
    assert isinstance(refused, Refusal)
    assert refused.reason.startswith("3.0%")
    wide = codec.encode(seeded.array(np.zeros((1, 65537), np.uint16)))
    assert isinstance(wide, Refusal)


def test_arguments_are_checked(seeded: Seeded, codec: PaletteCodec) -> None:
    words = gaussian(4, 64)
    good = on_device(seeded, encoded(words))
    raw = seeded.empty(2 * words.size + 2, np.uint8)
    for bad in (
        seeded.array(words.view(np.int16)),
        seeded.array(words.reshape(-1)),
        seeded.array(words)[:, ::2],
        raw[2:].view(np.uint16).reshape(words.shape),
    ):
        with pytest.raises(UsageError):
            codec.encode(bad)
        with pytest.raises(UsageError):
            codec.expand(good, bad)
    with pytest.raises(UsageError):
        codec.expand(good, seeded.empty((4, 63), np.uint16))
    for name in ARRAYS[:3]:
        array = getattr(good, name)
        for other in (array[:-1], array.view(np.int8)):
            changed = Palette(good.layout, good.base, **{n: getattr(good, n) for n in ARRAYS})
            object.__setattr__(changed, name, other)
            with pytest.raises(UsageError, match=name):
                codec.expand(changed)
            with pytest.raises(UsageError, match=name):
                codec.check(changed)


# ---- Damage


def damaged(palette: Palette, what: str) -> dict[str, Array]:
    """Return arrays of a palette that has a fault in row 2."""
    row_ptr, escapes, sm = palette.row_ptr.copy(), palette.escapes.copy(), palette.sm.copy()
    first = int(row_ptr[2])
    if what == STATUSES[1]:
        row_ptr[2:3] = row_ptr[-1] + 1
    elif what == STATUSES[2]:
        escapes[row_ptr[3] - 1] |= 0xFFFF
    elif what == STATUSES[3]:
        escapes[first : first + 2] = escapes[first : first + 2][::-1]
    else:
        sm[2 * palette.layout.stride + int(escapes[first] & 0xFFFF)] = 1
    return {"row_ptr": row_ptr, "escapes": escapes, "sm": sm}


@pytest.mark.parametrize("what", STATUSES[1:])
def test_the_check_says_what_is_wrong(seeded: Seeded, codec: PaletteCodec, what: str) -> None:
    palette = encoded(mixed(5, 200))
    row = 1 if what == STATUSES[1] else 2  # where a row begins is where the one before ends
    broken = on_device(seeded, palette, **damaged(palette, what))
    with pytest.raises(IntegrityError, match=f"row {row} of a palette: {what}"):
        codec.check(broken)


def test_random_damage_stays_inside(seeded: Seeded, codec: PaletteCodec) -> None:
    rng = np.random.default_rng(seeded.seed)
    for cols in (40, 37):
        palette = encoded(mixed(6, cols))
        for _ in range(8):
            row_ptr, escapes = palette.row_ptr.copy(), palette.escapes.copy()
            row_ptr[rng.integers(0, row_ptr.size, 3)] = rng.integers(0, 1 << 32, 3)
            escapes[rng.integers(0, escapes.size, 5)] = rng.integers(0, 1 << 32, 5)
            broken = on_device(seeded, palette, row_ptr=row_ptr, escapes=escapes)
            words = seeded.to_host(
                codec.expand(broken)
            )  # the simulator faults if it leaves a buffer
            assert words.shape == (6, cols)
            with pytest.raises(IntegrityError):
                codec.check(broken)


def test_the_reference_notices_damage() -> None:
    palette = encoded(mixed(5, 200))
    for what in STATUSES[1:3]:
        arrays = {name: getattr(palette, name) for name in ARRAYS} | damaged(palette, what)
        with pytest.raises(IntegrityError):
            reference.decode(Palette(palette.layout, palette.base, **arrays))
