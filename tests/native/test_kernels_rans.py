"""The rANS coder: every instruction set writes and reads what the NumPy reference defines."""

import functools
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from unweight_codecs.entropy.frequencies import normalise
from unweight_codecs.errors import IntegrityError, UnweightError
from unweight_codecs.kernels.native import NativeKernels
from unweight_codecs.kernels.operands import (
    ALPHABET,
    CONTEXT_RUN,
    GROUP,
    SEGMENT,
    SLOTS,
    Bytes,
    Contexts,
    Frequencies,
    padded,
)
from unweight_codecs.kernels.reference import ReferenceKernels

REFERENCE = ReferenceKernels()
ALPHABETS = (1, 2, 16, 31, 64, 128, 256)
SHAPES = ("uniform", "skewed", "extreme")
LENGTHS = {
    "1 to 130": tuple(range(1, 131)),
    "around 4096": tuple(range(4095, 4101)),
    "mixed": (9000, 9000, 5, 8999, 128, 9000),
}
WHOLE_CHUNKS = (131_072, 131_072, 1, 131_071)
TABLES = 3
CONTEXTS = 16


@dataclass(frozen=True)
class Case:
    """Segments of random symbols; extremely skewed ones hardly need a word of refill."""

    alphabet: int
    shape: str
    lengths: tuple[int, ...]
    run: int = 0  # of symbols that share a context; 0: no contexts

    def tables(self) -> Frequencies:
        """Return tables that differ in the order of their symbols."""
        rng = np.random.default_rng(self.alphabet)
        rank = np.arange(self.alphabet, dtype=np.float64)
        weights = {
            "uniform": np.ones(self.alphabet),
            "skewed": 0.7**rank,
            "extreme": np.where(rank == 0, 1e9, 0.0),
        }[self.shape]
        counts = np.zeros((CONTEXTS if self.run else TABLES, ALPHABET), np.int64)
        for row in counts:
            row[rng.permutation(self.alphabet)] = 1 + (1000 * weights).astype(np.int64)
        return normalise(counts)

    def segments(self) -> NDArray[np.void]:
        """Return segments that lie one after the other, each on whole groups."""
        found = np.zeros(len(self.lengths), SEGMENT)
        found["count"] = self.lengths
        found["start"] = np.cumsum([0, *map(padded, self.lengths[:-1])])
        if not self.run:
            found["table"] = np.arange(len(self.lengths)) % TABLES
        return found

    def symbols(self) -> tuple[Bytes, Contexts | None]:
        """Draw symbols by their frequencies, and their contexts."""
        rng, tables, segments = np.random.default_rng(7), self.tables(), self.segments()
        table_of = np.zeros(sum(map(padded, self.lengths)), np.uint8)
        for segment in segments:
            table_of[int(segment["start"]) :] = segment["table"]
        contexts = None
        if self.run:
            of = rng.integers(0, len(tables), table_of.size // self.run, np.uint8)
            contexts, table_of = Contexts(of, self.run), of.repeat(self.run)
        by_slot = np.array([np.repeat(np.arange(ALPHABET), row) for row in tables], np.uint8)
        symbols = by_slot[table_of, rng.integers(0, SLOTS, table_of.size)]
        return symbols, contexts


@functools.cache
def encoded_by_reference(case: Case) -> tuple[Bytes, NDArray[np.void]]:
    symbols, contexts = case.symbols()
    segments = case.segments()
    return REFERENCE.rans_encode(symbols, segments, case.tables(), contexts), segments


def cases() -> list[Case]:
    found = [
        Case(alphabet, shape, lengths)
        for alphabet in ALPHABETS
        for shape in SHAPES
        for lengths in LENGTHS.values()
    ]
    return found + [
        Case(alphabet, "skewed", lengths, run)
        for alphabet in ALPHABETS
        for run, lengths in (
            (1, LENGTHS["mixed"]),
            *((CONTEXT_RUN, some) for some in LENGTHS.values()),
        )
    ]


def describe(case: Case) -> str:
    names = {lengths: name for name, lengths in LENGTHS.items()}
    kind = f"contexts of {case.run}" if case.run else "tables"
    return f"{case.alphabet}-{case.shape}-{names.get(case.lengths, 'whole chunks')}-{kind}"


def check_parity(kernel: NativeKernels, case: Case) -> None:
    expected, expected_segments = encoded_by_reference(case)
    symbols, contexts = case.symbols()
    segments = case.segments()
    coded = kernel.rans_encode(symbols, segments, case.tables(), contexts)
    assert np.array_equal(segments, expected_segments)
    assert np.array_equal(coded, expected)
    decoded = np.zeros_like(symbols)
    kernel.rans_decode(coded, segments, case.tables(), contexts, decoded)
    assert np.array_equal(decoded, symbols)


@pytest.mark.parametrize("case", cases(), ids=describe)
def test_encoding_and_decoding(native_kernel: NativeKernels, case: Case) -> None:
    check_parity(native_kernel, case)


@pytest.mark.parametrize("run", [0, 1, CONTEXT_RUN])
@pytest.mark.parametrize("alphabet", [16, 256])
def test_whole_chunks(native_kernel: NativeKernels, alphabet: int, run: int) -> None:
    check_parity(native_kernel, Case(alphabet, "skewed", WHOLE_CHUNKS, run))


def test_a_context_for_a_run_is_the_context_of_each_of_its_symbols(
    native_kernel: NativeKernels,
) -> None:
    case = Case(31, "skewed", LENGTHS["mixed"], CONTEXT_RUN)
    symbols, contexts = case.symbols()
    assert contexts
    each = Contexts(contexts.of.repeat(CONTEXT_RUN))
    for kernel in (native_kernel, REFERENCE):
        by_run, one_by_one = (
            kernel.rans_encode(symbols, case.segments(), case.tables(), chosen)
            for chosen in (contexts, each)
        )
        assert np.array_equal(by_run, one_by_one)


@pytest.mark.parametrize("case", cases()[:: len(SHAPES)], ids=describe)
def test_the_reference_decodes_what_it_encodes(case: Case) -> None:
    coded, segments = encoded_by_reference(case)
    symbols, contexts = case.symbols()
    decoded = np.zeros_like(symbols)
    REFERENCE.rans_decode(coded, segments, case.tables(), contexts, decoded)
    assert np.array_equal(decoded, symbols)


def test_a_segment_of_one_symbol_has_no_words(native_kernel: NativeKernels) -> None:
    case = Case(1, "uniform", (GROUP * 50,))
    symbols, _ = case.symbols()
    segments = case.segments()
    assert native_kernel.rans_encode(symbols, segments, case.tables(), None).size == 4 * 32
    assert int(segments["length"][0]) == 4 * 32


@pytest.mark.parametrize("symbol", [63, 64, 127, 128, 200, 255])
@pytest.mark.parametrize("position", [0, 1000, 8191])
@pytest.mark.parametrize("segments", [1, 2, 3])
def test_a_symbol_without_frequency_is_refused(
    native_kernel: NativeKernels, symbol: int, position: int, segments: int
) -> None:
    case = Case(31, "skewed", (8192,) * segments)
    for kernel in (native_kernel, REFERENCE):
        symbols, _ = case.symbols()
        symbols[(segments - 1) * 8192 + position] = symbol
        with pytest.raises(UnweightError, match="no frequency"):
            kernel.rans_encode(symbols, case.segments(), case.tables(), None)


@pytest.fixture(params=["native", "reference"])
def decoder(
    request: pytest.FixtureRequest, native_kernel: NativeKernels
) -> NativeKernels | ReferenceKernels:
    return native_kernel if request.param == "native" else REFERENCE


DAMAGED = Case(16, "skewed", (3000, 3000, 700))


@pytest.mark.parametrize("which", range(3))
def test_truncated_segments(decoder: NativeKernels | ReferenceKernels, which: int) -> None:
    coded, whole = encoded_by_reference(DAMAGED)
    symbols, _ = DAMAGED.symbols()
    length = int(whole["length"][which])
    for shorter in (0, 1, 2, 127, 128, 129, 130, length // 2, length - 3, length - 2, length - 1):
        segments = whole.copy()
        segments["length"][which] = shorter
        with pytest.raises(IntegrityError):
            decoder.rans_decode(coded, segments, DAMAGED.tables(), None, np.zeros_like(symbols))


def test_a_segment_with_a_word_too_many(decoder: NativeKernels | ReferenceKernels) -> None:
    coded, segments = encoded_by_reference(DAMAGED)
    segments = segments.copy()
    segments["length"][2] += 2
    longer = np.concatenate([coded, np.zeros(8, np.uint8)])
    symbols, _ = DAMAGED.symbols()
    with pytest.raises(IntegrityError):
        decoder.rans_decode(longer, segments, DAMAGED.tables(), None, np.zeros_like(symbols))


def test_flipped_bits(native_kernel: NativeKernels) -> None:
    """Every flip is noticed: a lane that strays does not find back to where encoding began."""
    coded, segments = encoded_by_reference(DAMAGED)
    symbols, _ = DAMAGED.symbols()
    tables = DAMAGED.tables()
    parts = zip(segments["offset"].tolist(), segments["length"].tolist(), strict=True)
    used = np.concatenate([np.arange(offset, offset + length) for offset, length in parts])
    flips = np.random.default_rng(3).integers(0, used.size * 8, 300)
    states = np.arange(128 * 8)
    for flip in (*states.tolist(), *flips.tolist()):
        damaged = coded.copy()
        damaged[used[flip // 8]] ^= 1 << flip % 8
        with pytest.raises(IntegrityError):
            native_kernel.rans_decode(damaged, segments, tables, None, np.zeros_like(symbols))


def test_flipped_bits_in_the_reference() -> None:
    coded, segments = encoded_by_reference(DAMAGED)
    symbols, _ = DAMAGED.symbols()
    for flip in np.random.default_rng(4).integers(0, int(segments["length"][0]) * 8, 60).tolist():
        damaged = coded.copy()
        damaged[flip // 8] ^= 1 << flip % 8
        with pytest.raises(IntegrityError):
            REFERENCE.rans_decode(damaged, segments, DAMAGED.tables(), None, np.zeros_like(symbols))


@pytest.mark.parametrize("total", [4095, 4097])
def test_a_table_with_a_wrong_sum(decoder: NativeKernels | ReferenceKernels, total: int) -> None:
    coded, segments = encoded_by_reference(DAMAGED)
    symbols, _ = DAMAGED.symbols()
    tables = DAMAGED.tables()
    largest = int(tables[0].argmax())
    tables[0, largest] = int(tables[0, largest]) + total - SLOTS
    with pytest.raises(IntegrityError):
        decoder.rans_decode(coded, segments, tables, None, np.zeros_like(symbols))


@pytest.mark.parametrize("table", [TABLES, 255, 2**32 - 1])
def test_a_table_that_does_not_exist(decoder: NativeKernels | ReferenceKernels, table: int) -> None:
    coded, segments = encoded_by_reference(DAMAGED)
    segments = segments.copy()
    segments["table"][1] = table
    symbols, _ = DAMAGED.symbols()
    with pytest.raises(IntegrityError):
        decoder.rans_decode(coded, segments, DAMAGED.tables(), None, np.zeros_like(symbols))


def test_random_bytes_are_never_accepted(decoder: NativeKernels | ReferenceKernels) -> None:
    rng = np.random.default_rng(5)
    _, segments = encoded_by_reference(DAMAGED)
    symbols, _ = DAMAGED.symbols()
    for _ in range(20):
        noise = rng.integers(0, 256, int(segments["offset"][-1] + segments["length"][-1]), np.uint8)
        with pytest.raises(IntegrityError):
            decoder.rans_decode(noise, segments, DAMAGED.tables(), None, np.zeros_like(symbols))
