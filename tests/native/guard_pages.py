"""Checks of kernels on buffers that end where memory ends: a read or write beyond is fatal.

Each prints what it is about to do, so that the last line tells which call went too far.
"""

import contextlib
import ctypes
import math
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from unweight_codecs import fused
from unweight_codecs.entropy.frequencies import normalise
from unweight_codecs.errors import UnweightError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import (
    ALPHABET,
    CONTEXT_RUN,
    SEGMENT,
    Bytes,
    Contexts,
    FloatSplit,
    Frequencies,
    padded,
)
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.directory import parse_directory
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.span import Span
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

PAGE = mmap.PAGESIZE
NO_ACCESS = 0  # PROT_NONE
CHUNK_WORDS = 4096
RNG = np.random.default_rng(0)


def guarded(shape: int | tuple[int, ...], dtype: DTypeLike = np.uint8) -> NDArray[Any]:
    """Return an array of 0x5a bytes whose last byte is the last one of accessible memory."""
    extent = (shape,) if isinstance(shape, int) else shape
    count = math.prod(extent)
    size = count * np.dtype(dtype).itemsize
    room = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, room + PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address + room), ctypes.c_size_t(PAGE), NO_ACCESS):
        raise OSError(ctypes.get_errno(), "mprotect")
    array = np.frombuffer(memory, dtype, count, offset=room - size)
    array.view(np.uint8)[:] = 0x5A
    return array.reshape(extent)


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """Return a guarded copy."""
    copy = guarded(array.shape, array.dtype)
    copy[...] = array
    return copy


def histogram(kernel: NativeKernels) -> None:
    """Words of every size, all short lengths."""
    for size in (1, 2, 4, 8):
        for count in range(1, 40):
            words = copied(RNG.integers(0, 256, size * count, np.uint8)).view(f"<u{size}")
            kernel.histogram(words, 0, 14)


def bits(kernel: NativeKernels) -> None:
    """Packed values of every width and length."""
    for width in range(1, 9):
        print("width", width)
        for count in (*range(1, 301), 4096, 4097):
            values = copied(RNG.integers(0, 1 << width, count, np.uint8))
            packed = copied(kernel.pack_bits(values, width))
            assert np.array_equal(kernel.unpack_bits(packed, count, width), values)


def fields(kernel: NativeKernels) -> None:
    """Fields of every width anywhere in a block: the last one ends where memory does."""
    for width in range(1, 9):
        for size in range(1, 40):
            if size * 8 % width:
                continue
            for first, count in ((0, 1), (2, 1), (0, 7), (3, 130)):
                print("width", width, "size", size, "first", first, "blocks", count)
                blocks = copied(RNG.integers(0, 256, (count, first + size), np.uint8))
                restored = copied(blocks)
                restored[:, first:] = 0x5A
                values = copied(kernel.take_field(blocks, first, size, width))
                kernel.put_field(values, first, size, width, restored)
                assert np.array_equal(restored, blocks)


def zero_points(kernel: NativeKernels) -> None:
    """Contexts of every short number of blocks, and around whole batches."""
    for count in (*range(1, 140), 255, 256, 257, 1000):
        print("blocks", count)
        halves = [copied(RNG.integers(0, 256, count, np.uint8)) for _ in range(4)]
        assert kernel.zero_points(halves, 2, 7, 16).max() < 16


def splits() -> Iterator[FloatSplit]:
    """Return every split of every float dtype."""
    for dtype in DTYPES.values():
        if dtype.exponent_bits and dtype.components == 1:
            for m in range(min(3, dtype.mantissa_bits) + 1):
                window = 15 if dtype.exponent_bits > 4 else 16
                yield FloatSplit(
                    dtype.bits // 8, dtype.exponent_bits, dtype.mantissa_bits, m, 0, window
                )


def words(kernel: NativeKernels) -> None:
    """Words and planes of every float dtype; half of the words are escapes."""
    for split in splits():
        print(split)
        for count in (*range(1, 140), 4095, 4096, 4097):
            original = copied(RNG.integers(0, 256, count * split.word_bytes, np.uint8))
            symbols, low, top = kernel.split(original, count, split)
            symbols, top, planes = copied(symbols), copied(top), [copied(plane) for plane in low]
            escapes = copied(kernel.collect_escapes(original, symbols, count, split))
            joined = guarded(original.size)
            kernel.join(symbols, planes, top, count, split, joined)
            kernel.patch(symbols, count, split, escapes, joined)
            assert np.array_equal(joined, original)
            if escapes.size:  # escapes that run out
                expect_damage(kernel.patch, symbols, count, split, copied(escapes[1:]), joined)


def split16(kernel: NativeKernels) -> None:
    """Words of 16 bits in one pass, in chunks; half of the words are escapes."""
    for split in (split for split in splits() if split.word_bytes == 2):
        print(split)
        for count in (*range(1, 140), 4095, 4096, 4097, 9000):
            words = copied(RNG.integers(0, 256, 2 * count, np.uint8))
            kernel.split16(words, count, CHUNK_WORDS, split)


def expect_damage(call: Callable[..., object], *arguments: object) -> None:
    """Call a decoder with damaged input: noticed or not, it must stay inside its buffers."""
    with contextlib.suppress(UnweightError):
        call(*arguments)


def tables(number: int, alphabet: int) -> Frequencies:
    """Return tables of a skewed alphabet."""
    counts = np.zeros((number, ALPHABET), np.int64)
    counts[:, :alphabet] = 1 + (1000 * 0.8 ** np.arange(alphabet)).astype(np.int64)
    return normalise(counts)


def serialised(kernel: NativeKernels) -> None:
    """Tables read from bytes that end with the last of them, and from bytes cut anywhere."""
    for alphabet in (1, 2, 31, 256):
        for number in (1, 3):
            print(alphabet, number)
            frequencies = copied(tables(number, alphabet))
            data = kernel.serialise(frequencies)
            for length in range(len(data) + 1):
                part: Any = copied(np.frombuffer(data[:length], np.uint8))
                expect_damage(kernel.parse, part, 0, number)
            assert np.array_equal(kernel.parse(part, 0, number)[0], frequencies)


def rans(kernel: NativeKernels) -> None:
    """Segments of every kind, whole, cut short, and random bytes in their place."""
    for alphabet in (1, 2, 16, 31, 64, 65, 256):
        for lengths in ((1,), (128,), (129,), (1000,), (5000,), (1000, 1000), (4096, 4096, 77)):
            for contexts, run in ((None, 1), (5, 1), (5, CONTEXT_RUN)):
                print(alphabet, lengths, contexts, run)
                frequencies = copied(tables(contexts or 1, alphabet))
                segments = np.zeros(len(lengths), SEGMENT)
                segments["count"] = lengths
                segments["start"] = np.cumsum([0, *map(padded, lengths[:-1])])
                room = sum(map(padded, lengths))
                symbols = copied(RNG.integers(0, alphabet, room, np.uint16).astype(np.uint8))
                selected = random_contexts(contexts, room, run) if contexts else None
                coded = kernel.rans_encode(symbols, segments, frequencies, selected)
                used = int(segments["offset"][-1] + segments["length"][-1])
                coded, decoded = copied(coded[:used]), guarded(room)
                kernel.rans_decode(coded, segments, frequencies, selected, decoded)
                assert np.array_equal(decoded, symbols)
                damaged_rans(kernel, coded, segments, frequencies, selected, decoded)


def random_contexts(number: int, symbols: int, run: int) -> Contexts:
    """Return guarded contexts for so many symbols."""
    return Contexts(copied(RNG.integers(0, number, symbols // run, np.uint8)), run)


def damaged_rans(
    kernel: NativeKernels,
    coded: Bytes,
    segments: NDArray[np.void],
    frequencies: Frequencies,
    selected: Contexts | None,
    decoded: Bytes,
) -> None:
    """Cut the last segment short together with its buffer, or fill it with noise."""
    length, offset = int(segments["length"][-1]), int(segments["offset"][-1])
    for shorter in {0, 1, 64, 127, 128, 130, length // 2 & ~1, length - 2}:
        cut = segments.copy()
        cut["length"][-1] = shorter
        part = copied(coded[: offset + shorter])
        expect_damage(kernel.rans_decode, part, cut, frequencies, selected, decoded)
    for _ in range(5):
        noise = copied(RNG.integers(0, 256, coded.size, np.uint8))
        expect_damage(kernel.rans_decode, noise, segments, frequencies, selected, decoded)


def pipeline(mantissa_bits: int, classes: int) -> Pipeline:
    """Return a pipeline with small chunks."""
    grid, pack = HistogramGrid(mantissa_bits=mantissa_bits), Pack(chunk_log2=12)
    return pipeline_of(
        "small chunks", (ExponentWindow(), grid, ScaleClasses(classes=classes), BitExact(), pack)
    )


def fitted(pipe: Pipeline, dtype: str, words: Bytes) -> TensorModel:
    """Return the model of a tensor of 16-bit floats."""
    count = words.size // 2
    shape = (count // 50, 50) if count % 50 == 0 else (count,)
    view, _ = survey(
        TensorSpec("t", dtype, shape),
        lambda at, n: words[2 * at : 2 * (at + n)],
        CHUNK_WORDS,
        lambda piece: None,
    )
    return pipe.fit(view)


def decode16(kernel: NativeKernels) -> None:
    """Chunks of 16-bit floats in one pass, with and without escapes behind the planes."""
    for dtype in ("BF16", "F16"):
        for mantissa_bits in range(4):
            for classes in (1, 8):
                pipe = pipeline(mantissa_bits, classes)
                for count in (50, 1050, 2050, 4100, 8192, 8200, 12_350):
                    for escaped in (0.0, 0.02):
                        print(dtype, mantissa_bits, classes, count, escaped)
                        decode_tensor16(kernel, pipe, dtype, count, escaped)


def decode_tensor16(
    kernel: NativeKernels, pipe: Pipeline, dtype: str, count: int, escaped: float
) -> None:
    """Encode a tensor, then decode it whole and damaged, chunks and words guarded."""
    scale = np.exp2(RNG.integers(-3, 3, -(-count // 50))).repeat(50)[:count]
    values = (np.clip(RNG.normal(0, 1, count), -3, 3) * scale).astype("<f4")
    values[np.abs(values) < 2e-3] = 2e-3
    values[RNG.random(count) < escaped] *= np.float32(1e-4)
    halves = values.astype("<f2") if dtype == "F16" else values.view("<u2")[1::2].copy()
    model = fitted(pipe, dtype, halves.view(np.uint8))
    span = Span(0, count, halves.view(np.uint8))
    pipe.encode(span, model)
    empty = span.copy_empty()
    ScaleClasses().prepare(empty, model)
    if "context" in empty.streams:
        empty.streams["context"] = copied(empty.streams["context"])
    empty.coded, empty.words = copied(span.coded), guarded(2 * count)
    located = parse_directory(empty, model)
    if fused.decode16(empty, model, located, kernel):
        assert np.array_equal(empty.words, span.words)
    for flip in RNG.integers(0, 8 * span.coded.size, 20).tolist():
        empty.coded[flip // 8] ^= 1 << flip % 8
        expect_damage(fused.decode16, empty, model, located, kernel)


CHECKS = (
    histogram,
    bits,
    fields,
    zero_points,
    words,
    split16,
    serialised,
    rans,
    decode16,
)
