"""Payloads made to do harm: every checksum is right, but what they say cannot be.

Each case takes a good payload apart, changes one thing and seals it again.
"""

import struct
from collections.abc import Callable

import numpy as np
import pytest
import zstandard

from tests.support.payloads import Parts, frame_declaring, resealed
from unweight_codecs import payload
from unweight_codecs.entropy import frequencies
from unweight_codecs.entropy.directory import CODERS, chunk_lengths, entry
from unweight_codecs.errors import IntegrityError, UnweightError
from unweight_codecs.kernels.base import Bytes
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.stages.bound import Bound
from unweight_codecs.stages.grid import Grid
from unweight_codecs.stages.outlier import Outlier
from unweight_codecs.stages.pack import Pack
from unweight_codecs.stages.tile_svd import TileSvd
from unweight_codecs.tensor_spec import TensorSpec

Encode = Callable[[Pipeline, TensorSpec, Bytes], bytes]
Decode = Callable[[Pipeline, TensorSpec, bytes], bytes]

OUTLIER, GRID, TILE_SVD, BOUND, PACK = range(5)
COLUMNS, ROWS = 64, 128
PIPELINE = pipeline_of(
    "test", (Outlier(), Grid(mantissa_bits=1), TileSvd(), Bound(), Pack(chunk_log2=12))
)
CONTEXTS = pipeline_of(
    "contexts", (Outlier(), Grid(mantissa_bits=1), TileSvd(classes=8), Bound(), Pack(chunk_log2=12))
)


TERABYTE = 1 << 40
SPEC = TensorSpec("t", "BF16", (ROWS, COLUMNS))


def weights() -> Bytes:
    rng = np.random.default_rng(0)
    scales = np.exp2(rng.integers(-8, 1, ROWS))[:, None]
    values = (rng.normal(0, 1, (ROWS, COLUMNS)) * scales).astype("<f4")
    return np.ascontiguousarray(values.view("<u2")[:, 1::2]).view(np.uint8).reshape(-1)


@pytest.fixture
def good(encode_payload: Encode) -> Parts:
    return Parts.of(encode_payload(PIPELINE, SPEC, weights()), PIPELINE, SPEC)


@pytest.fixture
def contexts(encode_payload: Encode) -> Parts:
    parts = Parts.of(encode_payload(CONTEXTS, SPEC, weights()), CONTEXTS, SPEC)
    assert parts.sections[TILE_SVD] != b"\0"
    return parts


def test_sealing_changes_nothing(good: Parts, contexts: Parts, decode_payload: Decode) -> None:
    for parts, pipeline in ((good, PIPELINE), (contexts, CONTEXTS)):
        assert decode_payload(pipeline, SPEC, parts.seal()) == weights().tobytes()


def table(*values: int) -> bytes:
    """Return a serialised table of the given frequencies."""
    rows = np.zeros((1, 256), np.uint16)
    rows[0, : len(values)] = values
    return frequencies.serialise(rows)


SECTIONS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "outlier section empty": (OUTLIER, lambda s: b""),
    "outlier section too long": (OUTLIER, lambda s: s + b"\0"),
    "window beyond the last exponent": (OUTLIER, lambda s: struct.pack("<HBx", 242, 15)),
    "window far beyond the last exponent": (OUTLIER, lambda s: struct.pack("<HBx", 65535, 15)),
    "window too wide": (OUTLIER, lambda s: struct.pack("<HBx", 0, 16)),
    "window empty": (OUTLIER, lambda s: struct.pack("<HBx", 0, 0)),
    "outlier padding not zero": (OUTLIER, lambda s: s[:3] + b"\1"),
    "grid section empty": (GRID, lambda s: b""),
    "m of 4": (GRID, lambda s: b"\4" + s[1:]),
    "m of 255": (GRID, lambda s: b"\xff" + s[1:]),
    "grid section cut short": (GRID, lambda s: s[:-1]),
    "grid section cut inside a table": (GRID, lambda s: s[:5]),
    "grid section with a byte too many": (GRID, lambda s: s + b"\0"),
    "more tables than the section holds": (GRID, lambda s: s[:1] + b"\xff" + s[2:]),
    "table that sums to 4095": (GRID, lambda s: b"\1\1" + table(4095) + b"\0"),
    "table that sums to 4097": (GRID, lambda s: b"\1\1" + table(4000, 97) + b"\0"),
    "table of 65536 in sum": (GRID, lambda s: b"\1\1" + table(16384, 16384, 16384, 16384) + b"\0"),
    "tile_svd section empty": (TILE_SVD, lambda s: b""),
    "K of 1": (TILE_SVD, lambda s: b"\1"),
    "K of 255 in a byte": (TILE_SVD, lambda s: b"\xff"),
    "bound section not empty": (BOUND, lambda s: b"\0"),
    "pack section empty": (PACK, lambda s: b""),
    "pack section too long": (PACK, lambda s: s + b"\0"),
    "chunks of no words": (PACK, lambda s: struct.pack("<I", 0)),
    "chunks of 64 words": (PACK, lambda s: struct.pack("<I", 64)),
    "chunks of 4097 words": (PACK, lambda s: struct.pack("<I", 4097)),
    "chunks of another size": (PACK, lambda s: struct.pack("<I", 2048)),
    "chunks of 4 billion words": (PACK, lambda s: struct.pack("<I", (1 << 32) - 128)),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_sections(good: Parts, decode_payload: Decode, case: str) -> None:
    section, change = SECTIONS[case]
    good.sections[section] = change(good.sections[section])
    with pytest.raises(IntegrityError):
        decode_payload(PIPELINE, SPEC, good.seal())


def scales(section: bytes, which: int, coded: bytes, claimed: int | None = None) -> bytes:
    """Replace the row (0) or column (1) scales of a tile_svd section."""
    at = 1 + 2 * (section[0] - 1)
    for _ in range(which):
        at += 4 + struct.unpack_from("<I", section, at)[0]
    (length,) = struct.unpack_from("<I", section, at)
    size = len(coded) if claimed is None else claimed
    return section[:at] + struct.pack("<I", size) + coded + section[at + 4 + length :]


def zstd(size: int) -> bytes:
    return zstandard.compress(bytes(size))


CLASS_MAPS: dict[str, Callable[[bytes], bytes]] = {
    "K of 0": lambda s: b"\0" + s[1:],
    "K of 1 with everything else": lambda s: b"\1" + s[1:],
    "K one too large": lambda s: bytes([s[0] + 1]) + s[1:],
    "K one too small": lambda s: bytes([s[0] - 1]) + s[1:],
    "K of 17": lambda s: b"\x11" + s[1:],
    "K of 255": lambda s: b"\xff" + s[1:],
    "thresholds not ascending": lambda s: s[:1] + s[3:5] + s[1:3] + s[5:],
    "thresholds twice the same": lambda s: s[:1] + s[1:3] + s[1:3] + s[5:],
    "threshold of 0": lambda s: s[:1] + b"\0\0" + s[3:],
    "threshold of 511": lambda s: s[: 2 * s[0] - 3] + struct.pack("<H", 511) + s[2 * s[0] - 1 :],
    "threshold of 65535": lambda s: s[: 2 * s[0] - 3] + b"\xff\xff" + s[2 * s[0] - 1 :],
    "a row scale too few": lambda s: scales(s, 0, zstd(ROWS - 1)),
    "a row scale too many": lambda s: scales(s, 0, zstd(ROWS + 1)),
    "a column scale too few": lambda s: scales(s, 1, zstd(COLUMNS - 1)),
    "row scales that declare a terabyte": lambda s: scales(s, 0, frame_declaring(TERABYTE)),
    "column scales that declare a terabyte": lambda s: scales(s, 1, frame_declaring(TERABYTE)),
    "row scales that hold less than declared": lambda s: scales(s, 0, frame_declaring(ROWS)),
    "row scales that are no zstd frame": lambda s: scales(s, 0, b"no frame"),
    "row scales without bytes": lambda s: scales(s, 0, b""),
    "row scales of two frames": lambda s: scales(s, 0, zstd(ROWS) + zstd(1)),
    "row scales longer than the section": lambda s: scales(s, 0, b"", 1 << 31),
    "section cut before the tables": lambda s: s[:-200],
    "section cut in the last table": lambda s: s[:-1],
    "a byte after the last table": lambda s: s + b"\0",
    "last table with another sum": lambda s: s[:-1] + bytes([s[-1] ^ 1]),
}


@pytest.mark.parametrize("case", CLASS_MAPS)
def test_class_maps(contexts: Parts, decode_payload: Decode, case: str) -> None:
    contexts.sections[TILE_SVD] = CLASS_MAPS[case](contexts.sections[TILE_SVD])
    with pytest.raises(IntegrityError):
        decode_payload(CONTEXTS, SPEC, contexts.seal())


SYMBOL, TOP, ESCAPE = range(3)
CHUNK = 4096


def swap_chunks(parts: Parts) -> None:
    parts.segments[0], parts.segments[1] = parts.segments[1], parts.segments[0]


CHUNKS: dict[str, Callable[[Parts], None]] = {
    "unknown coder": lambda p: p.change(0, SYMBOL, 4, 0, p.segments[0][SYMBOL]),
    "coder 15": lambda p: p.change(1, TOP, 15, 0, p.segments[1][TOP]),
    "table beyond the last": lambda p: p.change(0, SYMBOL, "rans", 255, p.segments[0][SYMBOL]),
    "table of a stream without tables": lambda p: p.change(0, TOP, "rans", 0, bytes(128)),
    "rans segment without bytes": lambda p: p.change(0, SYMBOL, "rans", 0, b""),
    "rans segment of 127 bytes": lambda p: p.change(0, SYMBOL, "rans", 0, bytes(127)),
    "rans segment of 128 zeros": lambda p: p.change(0, SYMBOL, "rans", 0, bytes(128)),
    "rans segment a byte longer": lambda p: p.change(
        0, SYMBOL, "rans", 0, p.segments[0][SYMBOL] + b"\0"
    ),
    "rans segment a word longer": lambda p: p.change(
        0, SYMBOL, "rans", 0, p.segments[0][SYMBOL] + bytes(2)
    ),
    "rans segment a word shorter": lambda p: p.change(
        0, SYMBOL, "rans", 0, p.segments[0][SYMBOL][:-2]
    ),
    "raw segment a byte shorter": lambda p: p.change(0, TOP, "raw", 0, p.segments[0][TOP][:-1]),
    "raw segment a byte longer": lambda p: p.change(0, TOP, "raw", 0, p.segments[0][TOP] + b"\0"),
    "raw segment without bytes": lambda p: p.change(0, TOP, "raw", 0, b""),
    "raw symbols that ask for escapes": lambda p: p.change(0, SYMBOL, "raw", 0, b"\xff" * CHUNK),
    "constant segment of two bytes": lambda p: p.change(0, TOP, "constant", 0, b"\1\1"),
    "constant segment without bytes": lambda p: p.change(0, TOP, "constant", 0, b""),
    "constant segment too wide": lambda p: p.change(0, TOP, "constant", 0, b"\x80"),
    "zstd values too wide": lambda p: p.change(
        0, TOP, "zstd", 0, zstandard.compress(b"\x80" * CHUNK)
    ),
    "zstd segment that declares a terabyte": lambda p: p.change(
        0, SYMBOL, "zstd", 0, frame_declaring(TERABYTE)
    ),
    "zstd segment that declares all of memory": lambda p: p.change(
        0, SYMBOL, "zstd", 0, frame_declaring((1 << 64) - 3)
    ),
    "zstd segment that holds nothing": lambda p: p.change(
        0, SYMBOL, "zstd", 0, frame_declaring(CHUNK)
    ),
    "zstd segment that holds more": lambda p: p.change(0, SYMBOL, "zstd", 0, zstd(CHUNK + 1)),
    "zstd segment that holds less": lambda p: p.change(0, SYMBOL, "zstd", 0, zstd(CHUNK - 1)),
    "zstd segment without bytes": lambda p: p.change(0, SYMBOL, "zstd", 0, b""),
    "zstd segment of a skippable frame": lambda p: p.change(
        0, SYMBOL, "zstd", 0, struct.pack("<II", 0x184D2A50, 4) + bytes(4)
    ),
    "an escape too many": lambda p: p.change(0, ESCAPE, "raw", 0, p.segments[0][ESCAPE] + b"\0"),
    "an escape too few": lambda p: p.change(0, ESCAPE, "raw", 0, p.segments[0][ESCAPE][:-1]),
    "escapes that are constant": lambda p: p.change(0, ESCAPE, "constant", 0, b"\0"),
    "escapes by rans": lambda p: p.change(0, ESCAPE, "rans", 0, bytes(128)),
}


@pytest.mark.parametrize("case", CHUNKS)
def test_chunks(each_kernel: str, good: Parts, decode_payload: Decode, case: str) -> None:
    CHUNKS[case](good)
    with pytest.raises(IntegrityError):
        decode_payload(PIPELINE, SPEC, good.seal())


TABLES_WITHOUT_USE = {"raw": TOP, "constant": TOP, "zstd": SYMBOL}


@pytest.mark.parametrize("coder", TABLES_WITHOUT_USE)
def test_a_table_where_the_coder_has_none(good: Parts, decode_payload: Decode, coder: str) -> None:
    good.change(0, TABLES_WITHOUT_USE[coder], coder, 1, good.segments[0][TOP])
    with pytest.raises(IntegrityError, match="names a table"):
        decode_payload(PIPELINE, SPEC, good.seal())


ESCAPES = {"F16": (b"\x1f", b"\x20"), "F64": (b"\xff\x07", b"\x00\x08")}


@pytest.mark.parametrize("dtype", ESCAPES)
def test_an_escape_beyond_the_exponents(
    each_kernel: str, encode_payload: Encode, decode_payload: Decode, dtype: str
) -> None:
    highest, beyond = ESCAPES[dtype]
    spec = TensorSpec("t", dtype, (8192,))
    words = np.random.default_rng(3).normal(0, 1, 8192).astype(f"<f{int(dtype[1:]) // 8}")
    words[::100] = np.inf
    payload_bytes = encode_payload(PIPELINE, spec, words.view(np.uint8))
    for escape, accepted in ((highest, True), (beyond, False)):
        parts = Parts.of(payload_bytes, PIPELINE, spec)
        last = len(parts.segments[0]) - 1
        parts.change(0, last, "raw", 0, escape + parts.segments[0][last][len(escape) :])
        if accepted:
            decode_payload(PIPELINE, spec, parts.seal())
            continue
        with pytest.raises(IntegrityError, match="no exponent"):
            decode_payload(PIPELINE, spec, parts.seal())


def test_an_escape_where_the_window_holds_everything(
    each_kernel: str, encode_payload: Encode, decode_payload: Decode
) -> None:
    spec = TensorSpec("t", "F8_E4M3", (4096,))
    words = np.random.default_rng(4).integers(0, 256, 4096).astype(np.uint8)
    parts = Parts.of(encode_payload(PIPELINE, spec, words), PIPELINE, spec)
    last = len(parts.segments[0]) - 1
    parts.change(0, 0, "constant", 0, b"\x20")  # the first symbol after the window, m being 1
    parts.change(0, last, "raw", 0, bytes(4096))
    with pytest.raises(IntegrityError, match="every exponent"):
        decode_payload(PIPELINE, spec, parts.seal())


def test_padding_after_the_sections_that_is_not_zero(good: Parts, decode_payload: Decode) -> None:
    sealed = bytearray(good.seal())
    length = payload.peek_length(bytes(sealed[:64]), len(sealed))
    end = 40 + sum(map(len, good.sections))
    assert end % 8
    sealed[end] = 1
    with pytest.raises(IntegrityError, match="padding after the sections"):
        decode_payload(PIPELINE, SPEC, resealed(bytes(sealed[:length])) + bytes(sealed[length:]))


@pytest.mark.parametrize("pipeline", [PIPELINE, CONTEXTS], ids=["good", "contexts"])
def test_a_head_stays_below_its_limit(encode_payload: Encode, pipeline: Pipeline) -> None:
    sealed = encode_payload(pipeline, SPEC, weights())
    assert payload.peek_length(sealed[:64], len(sealed)) <= pipeline.head_limit(SPEC) < 500_000


def test_the_cases_meet_the_streams_they_mean(good: Parts) -> None:
    assert [len(chunk) for chunk in good.segments] == [3, 3]
    assert all(len(chunk[ESCAPE]) for chunk in good.segments)
    assert good.directory["segments"][0, SYMBOL] >> 28 == CODERS.index("rans")


DIRECTORIES: dict[str, Callable[[Parts], None]] = {
    "a row too few": lambda p: p.drop_row(),
    "a row too many": lambda p: setattr(p, "extra_rows", p.directory[:1].tobytes()),
    "padding that is not zero": lambda p: setattr(p, "extra_rows", b"\1"),
    "bytes after the last chunk": lambda p: setattr(p, "surplus", bytes(8)),
    "a chunk too few": lambda p: p.segments.__delitem__(-1),
    "outlier section beyond the head": lambda p: p.lengths.update({OUTLIER: 1 << 31}),
    "pack section beyond the head": lambda p: p.lengths.update({PACK: (1 << 32) - 1}),
    "sections that take the directory": lambda p: p.lengths.update({PACK: 52}),
}


@pytest.mark.parametrize("case", DIRECTORIES)
def test_directories(good: Parts, decode_payload: Decode, case: str) -> None:
    DIRECTORIES[case](good)
    with pytest.raises(IntegrityError):
        decode_payload(PIPELINE, SPEC, good.seal())


@pytest.mark.parametrize(
    "shape",
    [
        (1 << 40, COLUMNS),
        (ROWS, 1 << 40),
        (1 << 60,),
        (1 << 59, 1),
        (1, 1 << 59),
        (0, COLUMNS),
        (),
    ],
    ids=str,
)
@pytest.mark.parametrize("parts", ["good", "contexts"])
def test_a_tensor_that_claims_another_shape(
    request: pytest.FixtureRequest, parts: str, shape: tuple[int, ...]
) -> None:
    """A head is read before anything of the tensor's size is allocated."""
    pipeline = PIPELINE if parts == "good" else CONTEXTS
    sealed = request.getfixturevalue(parts).seal()
    length = payload.peek_length(sealed[:64], len(sealed))
    with pytest.raises(IntegrityError):
        pipeline.read_head(sealed[:length], TensorSpec("t", "BF16", shape), len(sealed))


@pytest.mark.parametrize("which", [0, 1], ids=["rows", "columns"])
def test_scales_that_agree_with_a_huge_shape(contexts: Parts, which: int) -> None:
    """A hostile manifest may claim the size that a hostile frame declares."""
    section = contexts.sections[TILE_SVD]
    contexts.sections[TILE_SVD] = scales(section, which, frame_declaring(TERABYTE))
    shape = (ROWS, TERABYTE) if which else (TERABYTE, COLUMNS)
    sealed = contexts.seal()
    length = payload.peek_length(sealed[:64], len(sealed))
    with pytest.raises(IntegrityError):
        CONTEXTS.read_head(sealed[:length], TensorSpec("t", "BF16", shape), len(sealed))


def test_rows_too_long_for_contexts(contexts: Parts) -> None:
    """Contexts take memory per row, so they are refused where an encoder never uses them."""
    columns, rows = 1 << 21, 16
    chunks = rows * columns // 131_072
    contexts.sections[PACK] = struct.pack("<I", 131_072)
    section = scales(contexts.sections[TILE_SVD], 0, zstd(rows))
    contexts.sections[TILE_SVD] = scales(section, 1, zstd(columns))
    contexts.directory = np.resize(contexts.directory, chunks)
    contexts.segments = [[b""] * 3] * chunks
    contexts.directory["segments"] = 0
    sealed = contexts.seal()
    length = payload.peek_length(sealed[:64], len(sealed))
    with pytest.raises(IntegrityError, match="tile_svd"):
        CONTEXTS.read_head(sealed[:length], TensorSpec("t", "BF16", (rows, columns)), len(sealed))


@pytest.mark.parametrize("shape", [(ROWS, COLUMNS - 1), (ROWS - 1, COLUMNS)], ids=str)
def test_a_shape_with_as_many_chunks(
    each_kernel: str, good: Parts, decode_payload: Decode, shape: tuple[int, ...]
) -> None:
    with pytest.raises(IntegrityError):
        decode_payload(PIPELINE, TensorSpec("t", "BF16", shape), good.seal())


@pytest.mark.parametrize("dtype", ["I16", "F16", "F8_E4M3", "F64", "F6_E2M3", "C64"])
def test_a_payload_of_another_dtype(good: Parts, decode_payload: Decode, dtype: str) -> None:
    with pytest.raises(IntegrityError):
        decode_payload(PIPELINE, TensorSpec("t", dtype, (ROWS, COLUMNS)), good.seal())


@pytest.mark.parametrize("parts", ["good", "contexts"])
def test_random_damage_behind_right_checksums(
    request: pytest.FixtureRequest, decode_payload: Decode, parts: str
) -> None:
    """Whatever a head says, the outcome is an error of ours or bytes for the digest to reject."""
    pipeline = PIPELINE if parts == "good" else CONTEXTS
    sealed = request.getfixturevalue(parts).seal()
    length = payload.peek_length(sealed[:64], len(sealed))
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(600):
        head = bytearray(sealed[:length])
        for at in rng.integers(16, length, rng.integers(1, 4)).tolist():
            head[at] = int(rng.integers(0, 256))
        try:
            decoded = decode_payload(pipeline, SPEC, resealed(bytes(head)) + sealed[length:])
        except UnweightError:
            refused += 1
        else:
            assert len(decoded) == SPEC.nbytes
    assert refused > 500


def test_random_damage_of_chunks_behind_right_checksums(
    each_kernel: str, contexts: Parts, decode_payload: Decode
) -> None:
    rng = np.random.default_rng(2)
    undamaged = contexts.segments
    for _ in range(100):
        contexts.segments = [list(chunk) for chunk in undamaged]
        chunk, stream = int(rng.integers(0, 2)), int(rng.integers(0, 3))
        data = bytearray(contexts.segments[chunk][stream])
        if data:
            data[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
        contexts.segments[chunk][stream] = bytes(data)
        try:
            decoded = decode_payload(CONTEXTS, SPEC, contexts.seal())
        except IntegrityError:
            continue
        assert len(decoded) == SPEC.nbytes


def test_chunk_lengths_are_whole_words() -> None:
    record = np.dtype([("checksum", "<u8"), ("segments", "<u4", (2,))])
    rows = np.zeros(2, record)
    rows["segments"] = [[entry("raw", 0, 1), entry("rans", 3, 130)], [0, entry("zstd", 0, 8)]]
    assert chunk_lengths(rows).tolist() == [8 + 136, 8]
