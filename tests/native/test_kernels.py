"""The C kernels against the definition of the formats: counting, bit packing, words and planes."""

from dataclasses import dataclass

import numpy as np
import pytest

from unweight_codecs.errors import IntegrityError, UnweightError
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import GROUP, SAMPLING_STRIDE, Bytes, padded
from unweight_codecs.kernels.reference import ReferenceKernels
from unweight_codecs.layouts import layout_of
from unweight_codecs.model import TensorModel
from unweight_codecs.span import Span
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

REFERENCE = ReferenceKernels()
AnyKernels = NativeKernels | ReferenceKernels
FLOATS = [dtype for dtype in DTYPES.values() if dtype.exponent_bits and dtype.components == 1]
COUNTS = (1, 7, 8, 63, 64, 65, 127, 129, 300, 4095, 4096, 4097)


@pytest.mark.parametrize("word_bytes", [1, 2, 4, 8])
def test_histograms_of_every_field(native_kernel: NativeKernels, word_bytes: int) -> None:
    rng = np.random.default_rng(word_bytes)
    words = rng.integers(0, 256, 1021 * word_bytes, np.uint8).view(f"<u{word_bytes}")
    for shift in range(8 * word_bytes):
        for bits in range(1, 15):
            counted = native_kernel.histogram(words, shift, bits)
            assert np.array_equal(counted, REFERENCE.histogram(words, shift, bits)), (shift, bits)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 100_003])
def test_histograms_of_every_length(native_kernel: NativeKernels, count: int) -> None:
    words = np.random.default_rng(count).integers(0, 1 << 16, count, np.uint16)
    counted = native_kernel.histogram(words, 4, 11)
    assert counted.sum() == count
    assert np.array_equal(counted, REFERENCE.histogram(words, 4, 11))


@pytest.mark.parametrize("stretch", [1, 5, 128, 4096])
@pytest.mark.parametrize("count", [1, 127, 128, 129, 8192, 12_289])
def test_histograms_of_sampled_stretches(
    native_kernel: NativeKernels, count: int, stretch: int
) -> None:
    words = np.random.default_rng(count).integers(0, 1 << 16, count, np.uint16)
    counted = native_kernel.histogram(words, 5, 9, stretch)
    assert np.array_equal(counted, REFERENCE.histogram(words, 5, 9, stretch))
    seen = words[np.arange(count) // stretch % SAMPLING_STRIDE == 0]
    assert np.array_equal(counted, REFERENCE.histogram(seen, 5, 9))


def test_a_histogram_with_too_many_bins_is_refused(native_kernel: NativeKernels) -> None:
    with pytest.raises(UnweightError, match="15 bits"):
        native_kernel.histogram(np.zeros(4, np.uint32), 0, 15)


@pytest.mark.parametrize("width", range(1, 9))
def test_packed_bits(native_kernel: NativeKernels, width: int) -> None:
    values = np.random.default_rng(width).integers(0, 1 << width, 65_537, np.uint8)
    for count in (*range(301), 4096, 65_537):
        part = values[:count]
        packed = native_kernel.pack_bits(part, width)
        assert packed.size == -(-count * width // 8)
        assert np.array_equal(packed, REFERENCE.pack_bits(part, width)), count
        assert np.array_equal(native_kernel.unpack_bits(packed, count, width), part), count


@pytest.mark.parametrize("width", range(1, 8))
def test_packing_takes_the_low_bits_only(native_kernel: NativeKernels, width: int) -> None:
    values = np.random.default_rng(width).integers(0, 256, 203, np.uint8)
    packed = native_kernel.pack_bits(values, width)
    assert np.array_equal(packed, REFERENCE.pack_bits(values, width))


def test_packed_values_that_are_cut_short_are_damage(native_kernel: NativeKernels) -> None:
    for kernel in (native_kernel, REFERENCE):
        for width in range(1, 9):
            for count in (1, 9, 1000):
                packed = kernel.pack_bits(np.zeros(count, np.uint8), width)
                with pytest.raises(IntegrityError, match="cut short"):
                    kernel.unpack_bits(packed[:-1], count, width)


@dataclass(frozen=True)
class Split:
    """How words of a dtype are split: m mantissa bits in the symbol, and where the window lies."""

    dtype: str
    top_bits: int
    base: int

    def model(self, count: int) -> TensorModel:
        spec = TensorSpec("t", self.dtype, (count,))
        layout = layout_of(spec)
        window = min(15 if layout.exponent_bits > 4 else 16, 1 << layout.exponent_bits)
        return TensorModel(
            spec, layout, 1 << 17, base=self.base, window=window, top_bits=self.top_bits
        )


def splits() -> list[Split]:
    """Every float dtype, every m, windows at both ends and in the middle."""
    found = []
    for dtype in FLOATS:
        last = max(0, (1 << dtype.exponent_bits) - 15) if dtype.exponent_bits > 4 else 0
        for top_bits in range(min(3, dtype.mantissa_bits) + 1):
            found += [Split(dtype.name, top_bits, base) for base in sorted({0, last // 2, last})]
    return found


def all_patterns(word_bytes: int) -> Bytes:
    """Every word, or where there are too many every combination of the highest 16 bits."""
    if word_bytes == 1:
        return np.arange(256, dtype=np.uint8)
    high = np.arange(1 << 16, dtype=np.uint64) << np.uint64(8 * word_bytes - 16)
    low = np.random.default_rng(word_bytes).integers(0, 1 << 48, 1 << 16, np.uint64)
    low &= np.uint64((1 << (8 * word_bytes - 16)) - 1)
    words: Bytes = (high | low).astype(f"<u{word_bytes}").view(np.uint8)
    return words


def split_by_stages(words: Bytes, model: TensorModel) -> dict[str, Bytes]:
    """Return the streams that the stages outlier and grid define."""
    span = Span(0, words.size // model.layout.word_bytes, words)
    ExponentWindow().encode(span, model)
    HistogramGrid().encode(span, model)
    return span.streams


def split_by_kernel(kernel: AnyKernels, words: Bytes, model: TensorModel) -> dict[str, Bytes]:
    count = words.size // model.layout.word_bytes
    symbols, planes, top = kernel.split(words, count, model.split)
    streams = {"symbol": symbols}
    streams |= {f"plane{k}": plane for k, plane in enumerate(planes)}
    if top.size:
        streams["top"] = top
    return streams | {"escape": kernel.collect_escapes(words, symbols, count, model.split)}


def join_by_stages(streams: dict[str, Bytes], model: TensorModel, count: int) -> Bytes:
    span = Span(0, count, np.empty(count * model.layout.word_bytes, np.uint8))
    span.streams = dict(streams)
    HistogramGrid().decode(span, model)
    ExponentWindow().decode(span, model)
    return span.words


def join_by_kernel(
    kernel: AnyKernels, streams: dict[str, Bytes], model: TensorModel, count: int
) -> Bytes:
    words = np.empty(count * model.layout.word_bytes, np.uint8)
    planes = [values for name, values in streams.items() if name.startswith("plane")]
    top = streams.get("top", np.zeros(0, np.uint8))
    kernel.join(streams["symbol"], planes, top, count, model.split, words)
    kernel.patch(streams["symbol"], count, model.split, streams["escape"], words)
    return words


@pytest.mark.parametrize("split", splits(), ids=str)
def test_words_and_planes_of_all_bit_patterns(native_kernel: NativeKernels, split: Split) -> None:
    check_words_and_planes(native_kernel, split, COUNTS)


@pytest.mark.parametrize("split", splits(), ids=str)
def test_the_reference_splits_words_as_the_stages_do(split: Split) -> None:
    check_words_and_planes(REFERENCE, split, (1, 129))


def check_words_and_planes(kernel: AnyKernels, split: Split, counts: tuple[int, ...]) -> None:
    layout = split.model(1).layout
    patterns = all_patterns(layout.word_bytes)
    for count in (patterns.size // layout.word_bytes, *counts):
        words = np.resize(patterns, count * layout.word_bytes)
        model = split.model(count)
        expected = split_by_stages(words, model)
        streams = split_by_kernel(kernel, words, model)
        assert streams.keys() == expected.keys()
        for name, values in expected.items():
            assert np.array_equal(streams[name], values), (count, name)
        assert np.array_equal(join_by_kernel(kernel, streams, model, count), words), count
        assert np.array_equal(join_by_stages(expected, model, count), words), count


@pytest.mark.parametrize("split", splits(), ids=str)
def test_damaged_symbols_join_to_the_same_words(native_kernel: NativeKernels, split: Split) -> None:
    """A damaged file may hold any symbol; what it means must not depend on the kernel."""
    count, rng = 1000, np.random.default_rng(split.base)
    model = split.model(count)
    streams: dict[str, Bytes] = {}
    for name, bits in model.streams().items():
        size = padded(count) if name == "symbol" else count
        streams[name] = rng.integers(0, 1 << min(bits, 8), size, np.uint8)
    escaped = int(np.count_nonzero(streams["symbol"][:count] >= model.split.escape_limit))
    streams["escape"] = rng.integers(0, 256, escaped * model.split.escape_bytes, np.uint8)
    expected = join_by_stages(streams, model, count)
    for kernel in (native_kernel, REFERENCE):
        assert np.array_equal(join_by_kernel(kernel, streams, model, count), expected)


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_wrong_number_of_escapes_is_damage(native_kernel: NativeKernels, difference: int) -> None:
    model = Split("BF16", 1, 100).model(GROUP)
    words = all_patterns(2)[: 2 * GROUP]
    streams = split_by_stages(words, model)
    streams["escape"] = np.resize(streams["escape"], streams["escape"].size + difference)
    with pytest.raises(IntegrityError, match="number of escapes"):
        join_by_stages(dict(streams), model, GROUP)
    for kernel in (native_kernel, REFERENCE):
        with pytest.raises(IntegrityError, match="number of escapes"):
            join_by_kernel(kernel, dict(streams), model, GROUP)
