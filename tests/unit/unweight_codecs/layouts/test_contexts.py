"""Contexts of block fields: what an earlier field of a block says about a later one."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from unweight_codecs.kernels.operands import CONTEXT_RUN, Bytes
from unweight_codecs.layouts import layout_of, streams_of
from unweight_codecs.layouts.contexts import CONTEXTS, PREDICTED, LowBits, ZeroPoint
from unweight_codecs.tensor_spec import BLOCK_DTYPES, TensorSpec

LEVELS = (16, 32)
HALVES = [0.0, -0.0, 1.0, -1.0, 0.1, -3.0, 6e-8, -6e-8, 65504.0, math.inf, -math.inf, math.nan]
PREDICTORS = [
    pytest.param(name, stream, id=f"{name} {stream}")
    for name, streams in PREDICTED.items()
    for stream in streams
]


def halves_of(pairs: "NDArray[np.float16] | NDArray[np.uint16]") -> dict[str, Bytes]:
    """Return the streams of d and m, the columns of ``pairs``."""
    columns = np.ascontiguousarray(pairs.view(np.uint8).reshape(-1, 4).T)
    return dict(zip(("d.0", "d.1", "m.0", "m.1"), columns, strict=True))


def zero_points(levels: int, pairs: Sequence[tuple[float, float]]) -> list[int]:
    """Return the context of each d and m."""
    streams = halves_of(np.array(pairs, "<f2"))
    found: list[int] = ZeroPoint("d", "m", levels).contexts(streams).tolist()
    return found


@pytest.mark.parametrize("levels", LEVELS)
def test_the_zero_point_is_the_context(each_kernel: str, levels: int) -> None:
    """Half steps of 16 levels, whole ones of 32: the middle ones have a context each."""
    for step in range(32):
        quant = step * levels / 32
        context = min(max(step - 7, 0), CONTEXTS - 1)
        found = zero_points(levels, [(0.25, -0.25 * quant), (-2.0, 2.0 * quant)])
        assert found == [context] * 2, quant
    assert zero_points(levels, [(1.0, 5.0), (1.0, -99.0)]) == [0, CONTEXTS - 1]


@pytest.mark.parametrize("levels", LEVELS)
def test_any_d_and_m_give_a_context(each_kernel: str, levels: int) -> None:
    pairs = [(d, m) for d in HALVES for m in HALVES]
    for (d, m), context in zip(pairs, zero_points(levels, pairs), strict=True):
        assert 0 <= context < CONTEXTS
        if d == 0 or not math.isfinite(d + m):
            assert context == 0, (d, m)


def interesting_halves() -> NDArray[np.uint16]:
    """Return all pairs of 500 values: every exponent, subnormals, zeros, infinities and NaNs."""
    mantissas = np.array([0, 1, 2, 0x155, 0x1FF, 0x200, 0x3FF], np.uint16)
    exponents = np.arange(32, dtype=np.uint16) << 10
    signs = np.array([0, 0x8000], np.uint16)
    powers = 1 << np.arange(10, dtype=np.uint16)
    values = np.unique(
        np.concatenate(
            [
                (signs[:, None, None] | exponents[:, None] | mantissas).reshape(-1),
                (signs[:, None] | powers).reshape(-1),  # subnormal
            ]
        )
    )
    found = np.stack(np.meshgrid(values, values), axis=-1).reshape(-1, 2)
    return np.ascontiguousarray(found)


def near_ties() -> NDArray[np.float16]:
    """Return d and m whose zero points are half-way between contexts, or next to that."""
    scale = np.array([1.0, -0.75, 1023.0, 6e-8, 2.0**-14, -1.37], "<f2")
    steps = np.arange(-8, 264) / 8
    minimum = (-scale.astype("<f4")[:, None] * steps.astype("<f4")).astype("<f2")
    words = minimum.view("<u2")[..., None] + np.array([-1, 0, 1]).astype("<u2")
    scales = np.broadcast_to(scale[:, None, None], words.shape)
    return np.stack([scales, words.astype("<u2").view("<f2")], axis=-1).reshape(-1, 2)


def samples() -> dict[str, Bytes]:
    """Return the streams of more than 200,000 pairs of d and m."""
    anything = np.random.default_rng(0).integers(0, 1 << 16, (50_001, 2), np.uint16)
    pairs = [interesting_halves(), near_ties().view(np.uint16), anything]
    return halves_of(np.concatenate(pairs))


@pytest.mark.parametrize("levels", LEVELS)
def test_every_kernel_finds_the_same_zero_points(
    kernels: Sequence[str], use_kernel: Callable[[str], None], levels: int
) -> None:
    streams = samples()
    found = {}
    for kernel in kernels:
        use_kernel(kernel)
        found[kernel] = ZeroPoint("d", "m", levels).contexts(streams)
    for contexts in found.values():
        np.testing.assert_array_equal(contexts, found["reference"])
    assert len(np.unique(found["reference"])) == CONTEXTS


@pytest.mark.parametrize("levels", LEVELS)
def test_zero_points_are_those_of_exact_arithmetic(each_kernel: str, levels: int) -> None:
    """Rounding the quotient to a double never moves it across the middle between contexts."""
    pairs = near_ties()
    contexts = ZeroPoint("d", "m", levels).contexts(halves_of(pairs)).tolist()
    for (d, m), context in zip(pairs.tolist(), contexts, strict=True):
        if math.isfinite(m):
            zero = round(Fraction(-m) / Fraction(d) * 32 / levels) - 7
            assert context == min(max(zero, 0), CONTEXTS - 1), (d, m)


def test_the_context_is_the_low_bits_of_a_byte() -> None:
    streams = {"d.1": np.arange(256, dtype=np.uint8)}
    contexts = LowBits("d.1").contexts(streams)
    assert contexts.tolist() == [byte % CONTEXTS for byte in range(256)]


@pytest.mark.parametrize(("name", "stream"), PREDICTORS)
def test_every_value_of_a_block_has_the_context_of_the_block(name: str, stream: str) -> None:
    dtype, count = BLOCK_DTYPES[name], 301
    blocks = np.random.default_rng(2).integers(0, 256, count * dtype.block_bytes, np.uint8)
    layout = layout_of(TensorSpec("t", name, (count, dtype.block_elements)))
    streams = streams_of(blocks, layout)
    of_blocks = PREDICTED[name][stream].contexts(streams)
    assert of_blocks.shape == (count,)
    contexts, run = layout.contexts(stream, streams)
    assert run in (1, CONTEXT_RUN)
    expected = of_blocks.repeat(streams[stream].size // count)
    np.testing.assert_array_equal(contexts.repeat(run), expected)


@pytest.mark.parametrize(("name", "stream"), PREDICTORS)
def test_a_predictor_needs_only_streams_before_the_predicted_one(name: str, stream: str) -> None:
    dtype = BLOCK_DTYPES[name]
    layout = layout_of(TensorSpec("t", name, (dtype.block_elements,)))
    order = list(layout.plain_streams())
    streams = streams_of(np.zeros(dtype.block_bytes, np.uint8), layout)
    before = {earlier: streams[earlier] for earlier in order[: order.index(stream)]}
    assert PREDICTED[name][stream].contexts(before).shape == (1,)
