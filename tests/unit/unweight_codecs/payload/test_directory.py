"""The chunk directory: entries of segments, and where each segment lies."""

import numpy as np
import pytest

from unweight_codecs.errors import IntegrityError
from unweight_codecs.layouts import layout_of
from unweight_codecs.model import BUILT_IN_CODERS, TensorModel
from unweight_codecs.payload.directory import (
    MIN_RECORD_BYTES,
    chunk_lengths,
    directory_dtype,
    entry,
    parse_directory,
)
from unweight_codecs.payload.segments import RANS, RAW
from unweight_codecs.span import Span
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

CHUNK = 4096


def model(dtype: str = "BF16", count: int = 3 * CHUNK - 5, top_bits: int = 1) -> TensorModel:
    spec = TensorSpec("t", dtype, (count,))
    return TensorModel(spec, layout_of(spec), CHUNK, base=100, window=15, top_bits=top_bits)


def span(found: TensorModel, rows: list[list[int]]) -> Span:
    directory = np.zeros(len(rows), directory_dtype(found))
    directory["segments"] = rows
    count = found.layout.words
    return Span(0, count, np.zeros(0, np.uint8), directory=directory)


@pytest.mark.parametrize("coder", BUILT_IN_CODERS)
@pytest.mark.parametrize(("table", "length"), [(0, 0), (1, 1), (255, (1 << 20) - 1)])
def test_an_entry_says_coder_table_and_length(coder: str, table: int, length: int) -> None:
    found = model()
    blank = entry(RAW, 0, 0)
    table = table if coder == "rans" else 0
    rows = [[entry(BUILT_IN_CODERS.index(coder), table, length), blank, blank]] * 3
    located = parse_directory(span(found, rows), found)[0, 0]
    assert BUILT_IN_CODERS[located["coder"]] == coder
    assert (int(located["table"]), int(located["length"])) == (table, length)


@pytest.mark.parametrize(("table", "length"), [(256, 0), (0, 1 << 20)])
def test_what_does_not_fit_an_entry(table: int, length: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        entry(RAW, table, length)


def test_offsets_are_padded_to_8_and_counts_end_with_the_tensor() -> None:
    found = model()
    row = [entry(RANS, 0, 130), entry(RAW, 0, 7), entry(RAW, 0, 0)]
    filled = span(found, [row] * 3)
    located = parse_directory(filled, found)
    assert located["offset"].tolist() == [
        [0, 136, 144],
        [144, 280, 288],
        [288, 424, 432],
    ]
    assert located["count"][:, 0].tolist() == [CHUNK, CHUNK, CHUNK - 5]
    assert chunk_lengths(filled.directory).tolist() == [144, 144, 144]


def test_an_unknown_coder_is_damage() -> None:
    found = model()
    with pytest.raises(IntegrityError, match="unknown coder"):
        parse_directory(span(found, [[4 << 28, 0, 0]] * 3), found)


@pytest.mark.parametrize("coder", ["raw", "constant", "zstd"])
def test_a_table_for_a_coder_without_tables_is_damage(coder: str) -> None:
    found = model()
    with pytest.raises(IntegrityError, match="names a table"):
        parse_directory(span(found, [[entry(BUILT_IN_CODERS.index(coder), 1, 0), 0, 0]] * 3), found)


STREAMS = {
    ("BF16", 0): ["symbol", "plane0", "escape"],
    ("BF16", 1): ["symbol", "top", "escape"],
    ("F16", 0): ["symbol", "plane0", "top", "escape"],
    ("F16", 3): ["symbol", "plane0", "escape"],
    ("F32", 0): ["symbol", "plane0", "plane1", "plane2", "escape"],
    ("F32", 2): ["symbol", "plane0", "plane1", "top", "escape"],
    ("F8_E4M3", 3): ["symbol", "top", "escape"],
    ("I32", 0): ["plane0", "plane1", "plane2", "plane3"],
    ("F6_E2M3", 0): ["plane0", "plane1", "plane2"],
    ("BOOL", 0): ["plane0"],
}


@pytest.mark.parametrize(("dtype", "top_bits"), STREAMS)
def test_streams_of_a_chunk(dtype: str, top_bits: int) -> None:
    streams = STREAMS[dtype, top_bits]
    found = model(dtype, 4096, top_bits)
    assert list(found.streams()) == streams
    assert directory_dtype(found).itemsize == 8 + 4 * len(streams)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_at_least_the_least_bytes(dtype: str) -> None:
    assert directory_dtype(model(dtype, 4096, 0)).itemsize >= MIN_RECORD_BYTES


@pytest.mark.parametrize("dtype", [name for name, found in DTYPES.items() if found.exponent_bits])
@pytest.mark.parametrize("top_bits", range(4))
def test_symbol_and_raw_bits_make_up_a_word(dtype: str, top_bits: int) -> None:
    layout = layout_of(TensorSpec("t", dtype, (64,)))
    if top_bits > layout.mantissa_bits:
        pytest.skip("more bits than the mantissa has")
    streams = model(dtype, 64, top_bits).streams()
    raw = sum(bits for name, bits in streams.items() if name not in ("symbol", "escape"))
    assert raw + layout.exponent_bits + top_bits == 8 * layout.word_bytes
