"""Checks of the kernels of the error-bounded mode, on buffers that end where memory ends."""

import contextlib

import numpy as np

from tests.native.guard_pages import RNG, copied, expect_damage, guarded
from tests.support import bounded
from unweight_codecs import fused
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import ALPHABET, LevelForm, LowRank
from unweight_codecs.payload.directory import parse_directory
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.span import Span
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec

SIZES = {"BF16": 2, "F16": 2, "F32": 4}
COUNTS = (*range(1, 70), 1023, 1024, 1025, 2049)
STEP = np.float32(0.1)


def levels(kernel: NativeKernels) -> None:
    """Words on grids of every kind, and back, with escapes that run out."""
    table = RNG.integers(-9, 9, 5).astype(np.int32)
    for dtype, size in SIZES.items():
        for form in (LevelForm(0, 20), LevelForm(3, 8), LevelForm(8, 255), LevelForm(0, 5, table)):
            for count in COUNTS:
                print(dtype, form.low_bits, form.limit, count)
                words = copied(RNG.integers(0, 256, count * size, np.uint8))
                prediction = copied(RNG.normal(0, 1, count).astype(np.float32))
                kept = copied(RNG.integers(0, 2, count).astype(bool))
                for guess, marks in ((None, None), (prediction, kept)):
                    if form.table is None:
                        kernel.quantise(words, dtype, marks, STEP, form, guess)
                    symbols = copied(RNG.integers(0, ALPHABET, count).astype(np.uint8))
                    low = copied(RNG.integers(0, 2, count if form.low_bits else 0, np.uint8))
                    number = int(np.count_nonzero(symbols >= form.limit)) * size
                    escapes, out = guarded(number), guarded(count * size)
                    kernel.dequantise(symbols, low, escapes, STEP, form, dtype, guess, out)
                    short = guarded(max(0, number - size))
                    expect_damage(
                        kernel.dequantise, symbols, low, short, STEP, form, dtype, guess, out
                    )
                    expect_damage(kernel.squared_error, words, out, dtype)
                    kernel.squared_error(words, words, dtype)


def decoding(kernel: NativeKernels) -> None:
    """Chunks on levels to words, whole and damaged."""
    for dtype, size in SIZES.items():
        for epsilon, rank in ((0.3, 0), (0.002, 0), (0.02, 2)):
            pipe = bounded.pipeline(spacing="uniform", rank=rank, tau=3)
            for rows in (1, 5, 42, 131, 200):
                print(dtype, epsilon, rank, rows)
                decode_matrix(kernel, pipe, TensorSpec("t", dtype, (rows, 63)), size, epsilon)


def decode_matrix(
    kernel: NativeKernels, pipe: Pipeline, spec: TensorSpec, size: int, epsilon: float
) -> None:
    values = bounded.low_rank((spec.shape[0], spec.shape[1]), 2, spec.shape[0], 0.1)
    words = bounded.words_of(values, spec.dtype)
    view, _ = survey(
        spec, lambda at, n: words[size * at : size * (at + n)], 4096, lambda piece: None
    )
    model = pipe.fit(view, epsilon)
    span = Span(0, spec.elements, words)
    pipe.encode(span, model)
    empty = span.copy_empty()
    for stage in pipe.stages:
        stage.prepare(empty, model)
    if empty.prediction is not None:
        empty.prediction = copied(empty.prediction)
    empty.coded, empty.words = copied(span.coded), guarded(words.size)
    located = parse_directory(empty, model)
    if fused.decode_levels(empty, model, located, kernel):
        pipe.check(span, pipe.as_decoded(model), epsilon)
    for flip in RNG.integers(0, 8 * span.coded.size, 20).tolist():
        empty.coded[flip // 8] ^= 1 << flip % 8
        with contextlib.suppress(IntegrityError):
            fused.decode_levels(empty, model, located, kernel)


def predictions(kernel: NativeKernels) -> None:
    """Factors of tiles of all kinds, from any word to any other."""
    for rank in (1, 5, 16):
        for tile in ((20, 130), (7, 33), (1, 1)):
            down, across = -(-20 // tile[0]), -(-130 // tile[1])
            factors = LowRank(
                tile,
                STEP,
                copied(RNG.integers(0, 513, (down, across, rank)).astype(np.uint16)),
                copied(RNG.integers(-128, 128, (20, across, rank)).astype(np.int8)),
                copied(RNG.integers(-128, 128, (down, rank, 130)).astype(np.int8)),
            )
            for first, count in ((0, 2600), (2599, 1), (129, 2), (100, 2500), (2470, 130)):
                print(rank, tile, first, count)
                kernel.predict(factors, first, count, 130)


CHECKS = (levels, decoding, predictions)
