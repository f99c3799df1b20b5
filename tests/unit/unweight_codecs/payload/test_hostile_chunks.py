"""Chunks of exact payloads made to do harm: checksums are right, what segments hold is not."""

import struct

import numpy as np
import pytest
import zstandard

from tests.support.frames import TERABYTE, frame_declaring
from tests.support.hostile import CHUNK, PLAIN, Segment, refused, refused_segment
from tests.support.payloads import Parts, encoded
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.payload.directory import chunk_lengths, entry
from unweight_codecs.payload.segments import RANS, RAW, ZSTD
from unweight_codecs.tensor_spec import TensorSpec

SYMBOL, TOP, ESCAPE = range(3)  # streams


def test_the_cases_meet_the_streams_they_mean() -> None:
    parts = PLAIN.parts()
    assert [len(chunk) for chunk in parts.segments] == [3, 3]
    assert all(len(chunk[ESCAPE]) for chunk in parts.segments)
    assert (parts.directory["segments"][:, SYMBOL] >> 28 == BUILT_IN_CODERS.index("rans")).all()


SEGMENTS: dict[str, Segment] = {
    "unknown coder": (SYMBOL, 4, 0, lambda s: s),
    "coder 15": (TOP, 15, 0, lambda s: s),
    "table beyond the last": (SYMBOL, "rans", 255, lambda s: s),
    "table of a stream without tables": (TOP, "rans", 0, bytes(128)),
    "rans segment without bytes": (SYMBOL, "rans", 0, b""),
    "rans segment of 127 bytes": (SYMBOL, "rans", 0, bytes(127)),
    "rans segment of 128 zeros": (SYMBOL, "rans", 0, bytes(128)),
    "rans segment a byte longer": (SYMBOL, "rans", 0, lambda s: s + b"\0"),
    "rans segment a word longer": (SYMBOL, "rans", 0, lambda s: s + bytes(2)),
    "rans segment a word shorter": (SYMBOL, "rans", 0, lambda s: s[:-2]),
    "raw segment a byte shorter": (TOP, "raw", 0, lambda s: s[:-1]),
    "raw segment a byte longer": (TOP, "raw", 0, lambda s: s + b"\0"),
    "raw segment without bytes": (TOP, "raw", 0, b""),
    "raw symbols that ask for escapes": (SYMBOL, "raw", 0, b"\xff" * CHUNK),
    "constant segment of two bytes": (TOP, "constant", 0, b"\1\1"),
    "constant segment without bytes": (TOP, "constant", 0, b""),
    "constant segment too wide": (TOP, "constant", 0, b"\x80"),
    "zstd values too wide": (TOP, "zstd", 0, zstandard.compress(b"\x80" * CHUNK)),
    "zstd segment that declares a terabyte": (SYMBOL, "zstd", 0, frame_declaring(TERABYTE)),
    "zstd segment that declares all of memory": (
        SYMBOL,
        "zstd",
        0,
        frame_declaring((1 << 64) - 3),
    ),
    "zstd segment that holds nothing": (SYMBOL, "zstd", 0, frame_declaring(CHUNK)),
    "zstd segment that holds more": (SYMBOL, "zstd", 0, zstandard.compress(bytes(CHUNK + 1))),
    "zstd segment that holds less": (SYMBOL, "zstd", 0, zstandard.compress(bytes(CHUNK - 1))),
    "zstd segment without bytes": (SYMBOL, "zstd", 0, b""),
    "zstd segment of a skippable frame": (
        SYMBOL,
        "zstd",
        0,
        struct.pack("<II", 0x184D2A50, 4) + bytes(4),
    ),
    "an escape too many": (ESCAPE, "raw", 0, lambda s: s + b"\0"),
    "an escape too few": (ESCAPE, "raw", 0, lambda s: s[:-1]),
    "escapes that are constant": (ESCAPE, "constant", 0, b"\0"),
    "escapes by rans": (ESCAPE, "rans", 0, bytes(128)),
}


@pytest.mark.parametrize("case", SEGMENTS)
def test_chunks(each_kernel: str, case: str) -> None:
    refused_segment(PLAIN, SEGMENTS[case])


STREAM_BY_CODER = {"raw": TOP, "constant": TOP, "zstd": SYMBOL}


@pytest.mark.parametrize("coder", STREAM_BY_CODER)
def test_a_table_where_the_coder_has_none(coder: str) -> None:
    parts = PLAIN.parts()
    parts.change(0, STREAM_BY_CODER[coder], coder, 1, parts.segments[0][TOP])
    refused(parts, match="names a table")


ESCAPES = {"F16": (b"\x1f", b"\x20"), "F64": (b"\xff\x07", b"\x00\x08")}


@pytest.mark.parametrize("dtype", ESCAPES)
def test_an_escape_beyond_the_exponents(each_kernel: str, dtype: str) -> None:
    highest, beyond = ESCAPES[dtype]
    spec = TensorSpec("t", dtype, (8192,))
    words = np.random.default_rng(3).normal(0, 1, 8192).astype(f"<f{int(dtype[1:]) // 8}")
    words[::100] = np.inf
    coded = encoded(PLAIN.pipeline, spec, words.view(np.uint8))
    for escape, accepted in ((highest, True), (beyond, False)):
        parts = Parts.of(coded, PLAIN.pipeline, spec)
        last = len(parts.segments[0]) - 1
        parts.change(0, last, "raw", 0, escape + parts.segments[0][last][len(escape) :])
        if accepted:
            assert len(parts.decode()) == spec.nbytes
        else:
            refused(parts, match="not an exponent")


def test_an_escape_where_the_window_holds_everything(each_kernel: str) -> None:
    spec = TensorSpec("t", "F8_E4M3", (4096,))
    words = np.random.default_rng(4).integers(0, 256, 4096).astype(np.uint8)
    parts = Parts.of(encoded(PLAIN.pipeline, spec, words), PLAIN.pipeline, spec)
    last = len(parts.segments[0]) - 1
    parts.change(0, 0, "constant", 0, b"\x20")  # the first symbol after the window, m being 1
    parts.change(0, last, "raw", 0, bytes(4096))
    refused(parts, match="every exponent")


def test_chunk_lengths_are_whole_words() -> None:
    record = np.dtype([("checksum", "<u8"), ("segments", "<u4", (2,))])
    rows = np.zeros(2, record)
    rows["segments"] = [[entry(RAW, 0, 1), entry(RANS, 3, 130)], [0, entry(ZSTD, 0, 8)]]
    assert chunk_lengths(rows).tolist() == [8 + 136, 8]
