"""Products of palettes: the very bits of the documented order of sums, at every base and batch."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.support import palette_model
from tests.gpu.support.devices import Device
from tests.gpu.support.matrices import ARRAYS, encoded, gaussian, mixed, on_device
from tests.gpu.support.palette_model import narrowed, widened
from tests.gpu.support.seeded import SEEDS, Seeded
from unweight_codecs.errors import UsageError
from unweight_gpu.palette.format import MAX_BASE, WINDOW, Palette
from unweight_gpu.palette.product import PaletteProduct

Words = NDArray[np.uint16]
Floats = NDArray[np.float32]
SHAPES = [(1, 1), (7, 33), (8, 512), (9, 520), (17, 1024), (5, 1100), (3, 4112)]
INFINITY, NAN = 0x7F80, 0x7FC0


@pytest.fixture(params=SEEDS)
def seeded(device: Device, request: pytest.FixtureRequest) -> Seeded:
    """Return the device with one of the seeds."""
    return Seeded(device, request.param)


@pytest.fixture
def kernels(seeded: Seeded) -> PaletteProduct:
    """Return the kernels under test."""
    return PaletteProduct(seeded)


def activations(batch: int, cols: int, seed: int = 1) -> Words:
    return narrowed(np.random.default_rng(seed).standard_normal((batch, cols)))


def finite(rows: int, cols: int) -> Words:
    """Weights with zeros and escapes, but no infinity and no NaN."""
    words = mixed(rows, cols)
    return np.where(words & INFINITY == INFINITY, np.uint16(0x1234), words).astype(np.uint16)


def assert_same(found: Floats, expected: Floats) -> None:
    """Compare bits; any NaN is like any other."""
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    known = ~np.isnan(expected)
    assert np.array_equal(found[known].view(np.uint32), expected[known].view(np.uint32))


def multiply(seeded: Seeded, kernels: PaletteProduct, palette: Palette, x: Words) -> Floats:
    result: Floats = seeded.to_host(kernels.multiply(on_device(seeded, palette), seeded.array(x)))
    return result


@pytest.mark.parametrize("batch", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_bit_is_that_of_the_model(
    seeded: Seeded, kernels: PaletteProduct, shape: tuple[int, int], batch: int
) -> None:
    words, x = finite(*shape), activations(batch, shape[1])
    palette = encoded(words)
    found = multiply(seeded, kernels, palette, x)
    assert_same(found, palette_model.product(palette, x))


def test_the_model_computes_products(seeded: Seeded, kernels: PaletteProduct) -> None:
    words, x = gaussian(40, 2100), activations(5, 2100)
    weights, inputs = widened(words).astype(np.float64), widened(x).astype(np.float64)
    exact, size = inputs @ weights.T, np.abs(inputs) @ np.abs(weights).T
    palette = encoded(words)
    for found in (palette_model.product(palette, x), multiply(seeded, kernels, palette, x)):
        # 33 additions of a lane's columns, 5 of lanes and 1 of slices; the bound of Higham (2002)
        # for sums in this order is their number times 2^-24.
        assert (np.abs(found - exact) <= size * 90 * 2.0**-24).all()
        assert np.abs(found - exact).max() < 1e-5


def test_a_row_is_the_same_in_every_batch(seeded: Seeded, kernels: PaletteProduct) -> None:
    palette, x = encoded(finite(19, 1500)), activations(16, 1500)
    alone = np.concatenate([multiply(seeded, kernels, palette, row[None]) for row in x])
    for batch in range(2, 17):
        assert_same(multiply(seeded, kernels, palette, x[:batch]), alone[:batch])


@pytest.mark.parametrize("base", [1, 2, 64, 127, 128, 129, 200, MAX_BASE])
@pytest.mark.parametrize("magnitude", [0, 1, 60, 127, 128, 200, 254])
def test_scaling_is_exact_at_every_base(
    seeded: Seeded, kernels: PaletteProduct, base: int, magnitude: int
) -> None:
    """Exponents of weights and activations from end to end: some sums overflow, none is scaled."""
    rng = np.random.default_rng(base * 256 + magnitude)
    shape = 5, 530
    exponents = base + rng.integers(0, WINDOW, shape)
    words = (rng.integers(0, 2, shape) << 15 | exponents << 7 | rng.integers(0, 128, shape)).astype(
        np.uint16
    )
    x = (
        rng.integers(0, 2, (2, 530)) << 15 | magnitude << 7 | rng.integers(0, 128, (2, 530))
    ).astype(np.uint16)
    palette = encoded(words, base)
    assert not palette.escapes.size
    assert_same(multiply(seeded, kernels, palette, x), palette_model.product(palette, x))


def test_one_large_activation_changes_nothing_else(seeded: Seeded, kernels: PaletteProduct) -> None:
    palette, x = encoded(gaussian(9, 2000)), activations(3, 2000)
    x[1, 700] = 0x7F00  # 2^127, which scaling takes to infinity
    found = multiply(seeded, kernels, palette, x)
    assert_same(found, palette_model.product(palette, x))
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("batch", [1, 4, 9])
def test_infinity_and_nan_come_through(seeded: Seeded, kernels: PaletteProduct, batch: int) -> None:
    words, x = gaussian(12, 600), activations(batch, 600)
    words[1, 5], words[2, 599], words[3, 100] = INFINITY, 0x8000 | INFINITY, NAN
    words[4, 7], words[4, 8] = INFINITY, 0xFF80  # infinities of both signs
    words[5, 50] = 0x7E00  # an escape that is finite
    words[6, 51] = 0
    x[:, [5, 7, 8, 100, 599]] = 0x3F80
    palette = encoded(words)
    found = multiply(seeded, kernels, palette, x)
    assert (found[:, 1] == np.inf).all()
    assert (found[:, 2] == -np.inf).all()
    assert np.isnan(found[:, [3, 4]]).all()
    assert np.isfinite(np.delete(found, [1, 2, 3, 4], axis=1)).all()
    assert_same(found, palette_model.product(palette, x))
    # Where infinity meets an escape, the zero that stands for it makes no NaN; a true zero does.
    x[0, 50] = INFINITY
    found = multiply(seeded, kernels, palette, x)
    assert found[0, 5] == np.inf
    assert np.isfinite(found[1:, 5]).all()
    assert_same(found, palette_model.product(palette, x))
    x[0, 50], x[0, 51] = 0x3F80, INFINITY
    found = multiply(seeded, kernels, palette, x)
    assert np.isnan(found[0, 6])
    assert_same(found, palette_model.product(palette, x))


def test_results_in_bf16_are_rounded_to_nearest(seeded: Seeded, kernels: PaletteProduct) -> None:
    words, x = gaussian(30, 300), activations(3, 300)
    words[0, 0], words[1, 0] = NAN, INFINITY
    words[2], words[3], x[:, 2:] = 0, 0, 0
    words[2, :2], words[3, :2], x[:, :2] = (0x3F80, 0x3B80), (0x3F81, 0x3B80), 0x3F80  # ties
    palette = on_device(seeded, encoded(words))
    full = seeded.to_host(kernels.multiply(palette, seeded.array(x)))
    half = seeded.to_host(kernels.multiply(palette, seeded.array(x), "BF16"))
    assert np.array_equal(half, narrowed(full))
    assert half[0, :4].tolist() == [0x7FFF, INFINITY, 0x3F80, 0x3F82]


def test_many_escapes(seeded: Seeded, kernels: PaletteProduct) -> None:
    """More in a row than the lanes of a group take in one turn."""
    words, x = gaussian(9, 700), activations(2, 700)
    words[2, ::2] = 0x4234
    words[8, :] = 0x0123
    palette = encoded(words)
    assert_same(multiply(seeded, kernels, palette, x), palette_model.product(palette, x))


def test_a_broken_list_gives_nan_and_stays_inside(seeded: Seeded, kernels: PaletteProduct) -> None:
    rng = np.random.default_rng(seeded.seed)
    for cols in (40, 37):
        good, x = encoded(finite(6, cols)), activations(3, cols)
        x[1, 3] = INFINITY  # searches the lists, too
        for batch in (1, 3):
            row_ptr, escapes = good.row_ptr.copy(), good.escapes.copy()
            row_ptr[3] = rng.integers(escapes.size + 1, 1 << 32)
            escapes[int(row_ptr[1]) - 1] |= 0xFFFF  # the last of row 0
            broken = on_device(seeded, good, row_ptr=row_ptr, escapes=escapes)
            found = seeded.to_host(kernels.multiply(broken, seeded.array(x[:batch])))
            assert np.isnan(found[0, [0, 2, 3]]).all()
            assert np.isfinite(found[0, [1, 4, 5]]).all()
        for _ in range(6):
            row_ptr, escapes = good.row_ptr.copy(), good.escapes.copy()
            row_ptr[rng.integers(0, row_ptr.size, 2)] = rng.integers(0, 1 << 32, 2)
            escapes[rng.integers(0, escapes.size, 5)] = rng.integers(0, 1 << 32, 5)
            broken = on_device(seeded, good, row_ptr=row_ptr, escapes=escapes)
            found = seeded.to_host(kernels.multiply(broken, seeded.array(x)))
            assert found.shape == (3, 6)


def test_arguments_are_checked(seeded: Seeded, kernels: PaletteProduct) -> None:
    palette, x = on_device(seeded, encoded(gaussian(4, 64))), seeded.array(activations(2, 64))
    for bad in (
        seeded.array(activations(2, 63)),
        seeded.array(activations(17, 64)),
        seeded.array(activations(1, 64)[0]),
        seeded.array(activations(2, 64).view(np.int16)),
        seeded.array(activations(2, 128))[:, ::2],
        seeded.empty(258, np.uint8)[2:].view(np.uint16).reshape(2, 64),
    ):
        with pytest.raises(UsageError):
            kernels.multiply(palette, bad)
    with pytest.raises(UsageError, match="one of F32, BF16"):
        kernels.multiply(palette, x, "F16")
    for out in (seeded.empty((2, 4), np.uint16), seeded.empty((4, 2), np.float32)):
        with pytest.raises(UsageError, match="the result is float32"):
            kernels.multiply(palette, x, out=out)
    short = Palette(palette.layout, palette.base, **{n: getattr(palette, n) for n in ARRAYS})
    object.__setattr__(short, "nibbles", palette.nibbles[:-1])
    with pytest.raises(UsageError, match="nibbles"):
        kernels.multiply(short, x)
