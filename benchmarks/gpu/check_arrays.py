"""Palettes, products and verification on a device against the processor."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from benchmarks.gpu.cases import Cases, Line, Sizes
from benchmarks.gpu.data import Words, coded, in_chunks, trained, whole
from unweight_codecs.bounded.float_words import FLOATS, values_of
from unweight_codecs.bounded.levels import squared_error
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.checking.checksums import Checksums
from unweight_gpu.checking.comparison import Verifier
from unweight_gpu.decoding.transfer import SpanRequest, Transfer
from unweight_gpu.device.interface import StreamingDevice
from unweight_gpu.palette import reference
from unweight_gpu.palette.codec import PaletteCodec
from unweight_gpu.palette.format import Palette, Refusal
from unweight_gpu.palette.product import MOST_ROWS, PaletteProduct

BATCHES: Final = (1, 2, 3, 4, 8, 16)
_LENGTHS: Final = (0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 4096)
_FIELDS: Final = (("<u1", 0, 8), ("<u2", 7, 8), ("<u2", 6, 9), ("<u4", 20, 12))
_ODD: Final = (0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 0x0001)  # zeros, infinities, NaN, subnormal


def palettes(device: StreamingDevice, sizes: Sizes) -> Line:
    """Encode, expand, and transcode what every preset has coded."""
    cases, codec, transfer = Cases("palettes"), PaletteCodec(device), Transfer(device)
    for words in _matrices(sizes):
        words[0, : len(_ODD)] = _ODD
        case = f"{words.shape[0]} x {words.shape[1]}"
        made, expected = codec.encode(device.array(words)), reference.encode(words)
        if isinstance(made, Refusal) or isinstance(expected, Refusal):
            raise IntegrityError(f"{cases.name}: {case}: there is none")
        for name in made.layout.arrays(0):
            found = device.to_host(getattr(made, name))
            cases.equal(f"{name} of {case}", found, getattr(expected, name))
        codec.check(made)
        cases.equal(f"{case}, expanded", device.to_host(codec.expand(made)), words)
        for name, pipeline in PRESETS.items():
            straight = _transcoded(transfer, in_chunks(pipeline, sizes.chunk_log2), words)
            codec.check(straight)
            back = device.to_host(codec.expand(straight))
            cases.equal(f"{case}, transcoded from {name}", back, words)
    return cases.line()


def products(device: StreamingDevice, sizes: Sizes) -> Line:
    """Multiply: sums are as close to exact ones as their order promises, rows never differ."""
    cases, codec, product = Cases("fused products"), PaletteCodec(device), PaletteProduct(device)
    for words in _matrices(sizes):
        cols = words.shape[1]
        palette, x = codec.encode(device.array(words)), trained((MOST_ROWS, cols), cols)
        if isinstance(palette, Refusal):
            raise IntegrityError(f"{cases.name}: {words.shape}: there is no palette")
        left, right = _numbers(x), _numbers(words)
        exact, size = left @ right.T, np.abs(left) @ np.abs(right).T
        # 64 lanes add up a row, and then the lanes: the bound of Higham (2002) for so many terms.
        allowed = size * (cols / 64 + 64) * 2.0**-24
        every = device.to_host(product.multiply(palette, device.array(x)))
        for batch in BATCHES:
            case = f"{words.shape[0]} x {cols}, batch {batch}"
            found = device.to_host(product.multiply(palette, device.array(x[:batch])))
            close = np.abs(found - exact[:batch]) <= allowed[:batch]
            cases.require(case, bool(close.all()))
            cases.equal(f"{case}, rows of a larger one", found, every[:batch])
    return cases.line()


def verification(device: StreamingDevice, sizes: Sizes) -> Line:
    """Checksums, comparison, sizes of errors, histograms."""
    cases, verifier = Cases("verification"), Verifier(device)
    data = np.random.default_rng(7).integers(0, 256, sizes.nbytes, np.uint8)
    held = device.array(data)
    places = [*enumerate(_LENGTHS), (3, data.size - 5), (0, data.size)]
    digests = Checksums(device).digests(held, np.array(places, np.uint64))
    for (at, size), digest in zip(places, digests, strict=True):
        expected = xxhash.xxh3_64_intdigest(data[at : at + size].data)
        cases.require(f"XXH3 of {size} bytes", int(digest) == expected)
    for place in (None, 0, data.size // 2, data.size - 1):
        other = data.copy()
        if place is not None:
            other[place] ^= 1
        found = verifier.first_difference(held, device.array(other))
        cases.require(f"a difference at byte {place}", found == place)
    for dtype in FLOATS:
        before = _finite(data, dtype)
        after = before.copy()
        after[::4] ^= 1  # the lowest byte of every word, or of every other one
        measured = verifier.squared_error(device.array(before), device.array(after), dtype)
        close = np.allclose(measured, squared_error(before, after, dtype), rtol=1e-12, atol=0)
        cases.require(f"the error of {dtype}", bool(close))
    for name, shift, bits in _FIELDS:
        fields = data.view(name) >> shift & (1 << bits) - 1
        counts = verifier.histogram(held.view(np.dtype(name)), shift, bits)
        expected_counts = np.bincount(fields, minlength=1 << bits).astype(np.uint32)
        cases.equal(f"a histogram of {bits} bits of {name}", counts, expected_counts)
    return cases.line()


def _matrices(sizes: Sizes) -> Iterator[Words]:
    for seed, shape in enumerate(sizes.matrices):
        yield trained(shape, seed)


def _transcoded(transfer: Transfer, pipeline: Pipeline, words: Words) -> Palette:
    """Code a matrix and have its chunks decoded to a palette."""
    spec = TensorSpec("t", "BF16", words.shape)
    (found,) = coded(pipeline, [(spec, words.reshape(-1).view(np.uint8))])
    if found is None:
        raise IntegrityError("palettes: a matrix does not shrink")
    request = SpanRequest(whole(pipeline, found), as_palette=True)
    pending = transfer.start(transfer.buffers[0], [request], download=False)
    transfer.finish(pending)
    return pending.palettes[0].palette(pending.out)


def _numbers(words: Words) -> NDArray[np.float64]:
    return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _finite(data: Bytes, dtype: str) -> Bytes:
    """Return the same words, but 0 for those that are no finite number."""
    finite = np.isfinite(values_of(data, dtype))
    words = data.reshape(finite.size, -1).copy()
    words[~finite] = 0
    return words.reshape(-1)
