"""Words of floats as values and back: exact one way, to nearest and ties to even the other."""

import struct

import numpy as np
import pytest

from tests.support import bounded
from unweight_codecs.bounded.float_words import FLOATS, may_change, values_of, words_of_values
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

EVERY_WORD = np.arange(1 << 16, dtype="<u2")


def test_every_f16_has_its_value() -> None:
    values = values_of(EVERY_WORD.view(np.uint8), "F16")
    for word, value in zip(EVERY_WORD.tolist(), values.tolist(), strict=True):
        (expected,) = struct.unpack("<e", struct.pack("<H", word))
        assert value == expected or (value != value and expected != expected), hex(word)


def test_every_bf16_has_its_value() -> None:
    values = values_of(EVERY_WORD.view(np.uint8), "BF16")
    assert np.array_equal(values.view("<u4"), EVERY_WORD.astype("<u4") << np.uint32(16))


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_every_finite_word_comes_back(dtype: str) -> None:
    values = values_of(EVERY_WORD.view(np.uint8), dtype)
    finite = np.isfinite(values)
    again = words_of_values(values[finite], dtype).view("<u2")
    assert np.array_equal(again, EVERY_WORD[finite])  # -0.0 and subnormals included


def test_words_of_32_bits_are_their_values() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 5000, np.uint32)
    assert np.array_equal(values_of(bits.view(np.uint8), "F32").view("<u4"), bits)
    assert np.array_equal(words_of_values(bits.view("<f4"), "F32").view("<u4"), bits)


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_values_between_two_words_go_to_the_nearer_and_ties_to_the_even_one(dtype: str) -> None:
    last = {"BF16": 0x7F7F, "F16": 0x7BFF}[dtype]
    lower = np.arange(last, dtype="<u2")
    pair = [values_of(words.view(np.uint8), dtype) for words in (lower, lower + np.uint16(1))]
    low, high = (values.astype(np.float64) for values in pair)
    middle = ((low + high) / 2).astype(np.float32)  # exact: one bit more than either
    below, above = np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf))
    for sign in (np.float32(1), np.float32(-1)):
        bit = np.uint16(0x8000 if sign < 0 else 0)
        even = np.where(lower & np.uint16(1), lower + np.uint16(1), lower)
        for values, expected in ((below, lower), (middle, even), (above, lower + np.uint16(1))):
            found = words_of_values(values * sign, dtype).view("<u2")
            assert np.array_equal(found, expected | bit)


def test_the_range_of_f16_ends_half_a_step_beyond_its_largest_value() -> None:
    inside = np.array([65504, 65519.996, -65519.996], np.float32)
    beyond = np.array([65520, -65520, 3e38, -3e38], np.float32)
    assert words_of_values(inside, "F16").view("<u2").tolist() == [0x7BFF, 0x7BFF, 0xFBFF]
    assert words_of_values(beyond, "F16").view("<u2").tolist() == [0x7C00, 0xFC00] * 2


def test_only_floats_of_two_dimensions_may_change() -> None:
    changed = {name for name in DTYPES if may_change(TensorSpec("t", name, (64, 64)))}
    assert changed == set(FLOATS) == set(bounded.FLOATS)
    for shape in ((), (4096,)):
        assert not may_change(TensorSpec("t", "F32", shape))
    assert may_change(TensorSpec("t", "F32", (2, 3, 4)))
