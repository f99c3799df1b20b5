"""Matrices with what is hard about weights, and palettes of them."""

import numpy as np
from numpy.typing import NDArray

from tests.gpu.support.palette_model import narrowed
from tests.gpu.support.seeded import Seeded
from unweight_codecs.bounded.float_words import FLOATS, words_of_values
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.device.interface import Array
from unweight_gpu.palette import reference
from unweight_gpu.palette.format import Layout, Palette

Words = NDArray[np.uint16]
ARRAYS = tuple(Layout(1, 1).arrays(0))
SHAPE = (61, 148)  # the last group of words is not full, and rows end inside of groups


def weights(dtype: str, shape: tuple[int, int], seed: int = 0, spread: float = 2.0) -> Bytes:
    """Return words of numbers whose rows differ in scale; some lie outside of any window."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * np.exp2(rng.normal(0, spread, (shape[0], 1)))
    values[rng.random(shape) < 0.01] *= 1e-6
    values[0, :4] = 0.0, -0.0, np.inf, -np.inf
    if dtype == "F64":
        return values.astype("<f8").reshape(-1).view(np.uint8)
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return words_of_values(values.astype(np.float32).reshape(-1), dtype)
    bytes_of_all = TensorSpec("t", dtype, shape).nbytes
    return np.clip(rng.normal(0, 30, bytes_of_all), -128, 127).astype(np.int8).view(np.uint8)


def words_of(shape: tuple[int, int], seed: int = 0, escapes: float = 0.003) -> Words:
    """BF16 words of a trained look: rows differ in scale, few weights lie far off, some are 0."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * np.exp2(rng.normal(0, 0.7, (shape[0], 1)))
    far = rng.random(shape) < escapes
    values[far] *= np.exp2(rng.integers(-120, -20, shape))[far]
    words = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    words[0, :6] = 0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 0x0001
    words[-1, -1] = 0x8000
    return words


def gaussian(rows: int, cols: int, seed: int = 0) -> Words:
    """Normally distributed weights."""
    return narrowed(0.02 * np.random.default_rng(seed).standard_normal((rows, cols)))


def mixed(rows: int, cols: int, seed: int = 0) -> Words:
    """Weights as they are, and among them zeros of both signs and any other pattern."""
    rng = np.random.default_rng(seed)
    words = gaussian(rows, cols, seed).reshape(-1)
    for share, values in ((10, 0), (11, 0x8000), (7, rng.integers(0, 1 << 16, words.size))):
        chosen = rng.integers(0, share, words.size) == 0
        words = np.where(chosen, values, words).astype(np.uint16)
    return words.reshape(rows, cols)


def encoded(words: Words, base: int | None = None) -> Palette:
    """Return the palette of words in host memory, whatever it costs."""
    found = reference.encode(words, base, max_escapes=1)
    assert isinstance(found, Palette)
    return found


def on_device(device: Seeded, palette: Palette, **changed: Array) -> Palette:
    """Return a palette in device memory; arrays may be given in the place of its own."""
    arrays = {name: device.array(changed.get(name, getattr(palette, name))) for name in ARRAYS}
    return Palette(palette.layout, palette.base, **arrays)
