"""Payloads of error-bounded tensors made to do harm: checksums are right, what they say cannot be.

Each case takes a good payload apart, changes one thing and seals it again.
"""

import struct
from collections.abc import Callable

import numpy as np
import pytest
import zstandard

from tests.support import bounded
from tests.support.memory import at_most_more
from tests.support.payloads import Parts, frame_declaring, resealed
from unweight_codecs import payload
from unweight_codecs.entropy.directory import CODERS
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError
from unweight_codecs.kernels.base import Bytes
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.quantise.values import values_of
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

Decode = Callable[[Pipeline, TensorSpec, bytes], bytes]

OUTLIER, GRID, TILE_SVD, BOUND, PACK = range(5)
SYMBOL, LOW, ESCAPE = range(3)
ROWS, COLUMNS, CHUNK = 128, 64, 4096
SPEC = TensorSpec("t", "BF16", (ROWS, COLUMNS))
EPSILON = 0.01
TERABYTE = 1 << 40
MEMORY = 64 << 20
LOW_BITS = bounded.pipeline(spacing="uniform")
TABLE = bounded.pipeline(spacing="lloyd")
FACTORS = bounded.pipeline(rank=1, tile=50)


def words() -> Bytes:
    values = bounded.low_rank((ROWS, COLUMNS), 1, 0, 0.01)
    return bounded.with_specials(bounded.words_of(values, "BF16"), "BF16", 40)


def parts_of(pipe: Pipeline, epsilon: float = EPSILON) -> Parts:
    return Parts.of(bounded.encoded(pipe, SPEC, words(), epsilon), pipe, SPEC)


@pytest.fixture
def low_bits() -> Parts:
    return parts_of(LOW_BITS, 0.002)


@pytest.fixture
def table() -> Parts:
    return parts_of(TABLE, 0.3)


@pytest.fixture
def factors() -> Parts:
    return parts_of(FACTORS)


def test_the_cases_meet_what_they_mean(low_bits: Parts, table: Parts, factors: Parts) -> None:
    assert low_bits.sections[GRID][0] > 0  # low bits
    assert [len(chunk) for chunk in low_bits.segments] == [3, 3]
    assert all(len(chunk[ESCAPE]) for chunk in low_bits.segments)
    assert low_bits.directory["segments"][0, SYMBOL] >> 28 == CODERS.index("rans")
    assert table.sections[GRID][0] == 0
    assert table.sections[GRID][2] == 1
    assert factors.sections[TILE_SVD][0] == 1  # the rank that pays


@pytest.mark.parametrize("kind", ["low_bits", "table", "factors"])
def test_sealing_changes_nothing(
    request: pytest.FixtureRequest, decode_payload: Decode, kind: str
) -> None:
    pipe = {"low_bits": LOW_BITS, "table": TABLE, "factors": FACTORS}[kind]
    decoded = decode_payload(pipe, SPEC, request.getfixturevalue(kind).seal())
    whole, _ = bounded.relative_errors(words(), np.frombuffer(decoded, np.uint8), "BF16", CHUNK)
    assert whole <= 0.3


def refused(parts: Parts, pipe: Pipeline, decode: Decode, spec: TensorSpec = SPEC) -> None:
    """Check that a payload is refused, and with little memory."""
    sealed = parts.seal()
    with at_most_more(MEMORY), pytest.raises(IntegrityError):
        decode(pipe, spec, sealed)


Change = Callable[[bytes], bytes]
SECTIONS: dict[str, tuple[int, Change]] = {
    "outlier section not empty": (OUTLIER, lambda s: b"\0"),
    "grid section empty": (GRID, lambda s: b""),
    "grid section of three bytes": (GRID, lambda s: s[:3]),
    "9 low bits": (GRID, lambda s: b"\x09" + s[1:]),
    "255 low bits": (GRID, lambda s: b"\xff" + s[1:]),
    "a limit of 0": (GRID, lambda s: s[:1] + b"\0" + s[2:]),
    "an unknown kind of levels": (GRID, lambda s: s[:2] + b"\2" + s[3:]),
    "a table beside low bits": (GRID, lambda s: s[:2] + b"\1" + s[3:]),
    "a table that is not there": (GRID, lambda s: b"\0\xff\1" + s[3:]),
    "a grid section without frequency tables": (GRID, lambda s: s[:3] + b"\0"),
    "more frequency tables than there are": (GRID, lambda s: s[:3] + b"\xff" + s[4:]),
    "a frequency table cut short": (GRID, lambda s: s[:-1]),
    "a byte after the last frequency table": (GRID, lambda s: s + b"\0"),
    "tile_svd section empty": (TILE_SVD, lambda s: b""),
    "tile_svd section of a rank alone": (TILE_SVD, lambda s: b"\1"),
    "tile_svd section off and longer": (TILE_SVD, lambda s: b"\0\0"),
    "bound section empty": (BOUND, lambda s: b""),
    "a step too few": (BOUND, lambda s: s[:-4]),
    "a step too many": (BOUND, lambda s: s + s[:4]),
    "a step of three bytes": (BOUND, lambda s: s[:-1]),
    "pack section empty": (PACK, lambda s: b""),
    "chunks of no words": (PACK, lambda s: struct.pack("<I", 0)),
    "chunks of another size": (PACK, lambda s: struct.pack("<I", 2048)),
    "chunks of 4 billion words": (PACK, lambda s: struct.pack("<I", (1 << 32) - 128)),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_sections(low_bits: Parts, decode_payload: Decode, case: str) -> None:
    section, change = SECTIONS[case]
    low_bits.sections[section] = change(low_bits.sections[section])
    refused(low_bits, LOW_BITS, decode_payload)


STEPS = {
    "NaN": np.nan,
    "infinite": np.inf,
    "minus infinity": -np.inf,
    "negative": -0.01,
    "subnormal": 1e-40,
    "below 2**-100": 2.0**-100 * (1 - 2.0**-24),
    "above 2**100": 2.0**100 * (1 + 2.0**-23),
    "the largest float": 3.4e38,
}


@pytest.mark.parametrize("case", STEPS)
def test_steps(low_bits: Parts, decode_payload: Decode, case: str) -> None:
    step = struct.pack("<f", STEPS[case])
    low_bits.sections[BOUND] = low_bits.sections[BOUND][:4] + step
    refused(low_bits, LOW_BITS, decode_payload)


@pytest.mark.parametrize("step", [0.0, -0.0, 2.0**-100, 2.0**100])
def test_steps_at_the_limits_decode(
    each_kernel: str, low_bits: Parts, decode_payload: Decode, step: float
) -> None:
    low_bits.sections[BOUND] = struct.pack("<ff", step, step)
    assert len(decode_payload(LOW_BITS, SPEC, low_bits.seal())) == SPEC.nbytes


LEVELS: dict[str, Change] = {
    "a level above 2**23": lambda s: s[:3] + struct.pack("<i", (1 << 23) + 1) + s[7:],
    "a level below -2**23": lambda s: s[:3] + struct.pack("<i", -(1 << 23) - 1) + s[7:],
    "the lowest level there is": lambda s: s[:3] + struct.pack("<i", -(1 << 31)) + s[7:],
    "a level too few": lambda s: s[:3] + s[7:],
    "a level too many": lambda s: s[:3] + bytes(4) + s[3:],
    "a table longer than the section": lambda s: s[:1] + b"\xff" + s[2:],
    "a table cut short": lambda s: s[:5],
    "a table and nothing after it": lambda s: s[: 3 + 4 * s[1]],
}


@pytest.mark.parametrize("case", LEVELS)
def test_tables_of_levels(table: Parts, decode_payload: Decode, case: str) -> None:
    table.sections[GRID] = LEVELS[case](table.sections[GRID])
    refused(table, TABLE, decode_payload)


def test_levels_in_any_order_decode(each_kernel: str, table: Parts, decode_payload: Decode) -> None:
    section = table.sections[GRID]
    number = section[1]
    levels = np.frombuffer(section, "<i4", number, 3)[::-1].tobytes()
    table.sections[GRID] = section[:3] + levels + section[3 + 4 * number :]
    assert len(decode_payload(TABLE, SPEC, table.seal())) == SPEC.nbytes


HEAD = struct.Struct("<BIIfIII")


def factors_with(section: bytes, **changes: int | float | bytes) -> bytes:
    """Change fields of the head of the section, or replace frames with their lengths."""
    names = ("rank", "height", "width", "scale", "weights", "left", "right")
    values = dict(zip(names, HEAD.unpack_from(section), strict=True))
    frames, at = {}, HEAD.size
    for name in names[4:]:
        frames[name] = section[at : at + values[name]]
        at += values[name]
    for name, value in changes.items():
        if isinstance(value, bytes):
            frames[name], value = value, len(value)
        values[name] = value
    return HEAD.pack(*values.values()) + b"".join(frames.values())


def zstd(data: bytes) -> bytes:
    return zstandard.compress(data)


TILES = 3 * 2  # of 50 by 50
FACTOR_CASES: dict[str, Change] = {
    "a rank of 2 for factors of 1": lambda s: factors_with(s, rank=2),
    "a rank of 17": lambda s: factors_with(s, rank=17),
    "a rank of 255": lambda s: factors_with(s, rank=255),
    "a height of 0": lambda s: factors_with(s, height=0),
    "a width of 0": lambda s: factors_with(s, width=0),
    "a height above the rows": lambda s: factors_with(s, height=ROWS + 1),
    "a width above the columns": lambda s: factors_with(s, width=COLUMNS + 1),
    "a tile of 4 billion": lambda s: factors_with(s, height=0xFFFFFFFF, width=0xFFFFFFFF),
    "tiles of one word": lambda s: factors_with(s, rank=16, height=1, width=1),
    "a height that gives fewer tiles": lambda s: factors_with(s, height=64),
    "a width that gives more tiles": lambda s: factors_with(s, width=20),
    "a scale of 0": lambda s: factors_with(s, scale=0.0),
    "a negative scale": lambda s: factors_with(s, scale=-0.001),
    "a scale that is NaN": lambda s: factors_with(s, scale=np.nan),
    "an infinite scale": lambda s: factors_with(s, scale=np.inf),
    "a scale above 2**100": lambda s: factors_with(s, scale=2.0**101),
    "a scale below 2**-100": lambda s: factors_with(s, scale=2.0**-101),
    "a weight of 513": lambda s: factors_with(s, weights=zstd(struct.pack("<H", 513) * TILES)),
    "a weight of 65535": lambda s: factors_with(s, weights=zstd(b"\xff\xff" * TILES)),
    "a weight too few": lambda s: factors_with(s, weights=zstd(bytes(2 * TILES - 2))),
    "half a weight too many": lambda s: factors_with(s, weights=zstd(bytes(2 * TILES + 1))),
    "a left factor too many": lambda s: factors_with(s, left=zstd(bytes(2 * ROWS + 1))),
    "a right factor too few": lambda s: factors_with(s, right=zstd(bytes(3 * COLUMNS - 1))),
    "weights that declare a terabyte": lambda s: factors_with(s, weights=frame_declaring(TERABYTE)),
    "left factors that declare a terabyte": lambda s: factors_with(
        s, left=frame_declaring(TERABYTE)
    ),
    "right factors that declare more than they hold": lambda s: factors_with(
        s, right=frame_declaring(3 * COLUMNS)
    ),
    "left factors that are no frame": lambda s: factors_with(s, left=b"no frame"),
    "left factors without bytes": lambda s: factors_with(s, left=b""),
    "frames longer than the section": lambda s: factors_with(s, weights=0xFFFFFFFF),
    "a frame that takes the next one": lambda s: factors_with(s, left=HEAD.unpack_from(s)[5] + 1),
    "a section cut in its head": lambda s: s[: HEAD.size - 1],
    "a section without frames": lambda s: s[: HEAD.size],
    "a section cut in the last frame": lambda s: s[:-1],
    "a byte after the last frame": lambda s: s + b"\0",
}


@pytest.mark.parametrize("case", FACTOR_CASES)
def test_factors(factors: Parts, decode_payload: Decode, case: str) -> None:
    factors.sections[TILE_SVD] = FACTOR_CASES[case](factors.sections[TILE_SVD])
    refused(factors, FACTORS, decode_payload)


def test_the_largest_factors_decode(
    each_kernel: str, factors: Parts, decode_payload: Decode
) -> None:
    """Sums, products and values stay finite at the end of every range."""
    rank, tiles = 16, TILES
    factors.sections[TILE_SVD] = factors_with(
        factors.sections[TILE_SVD],
        rank=rank,
        scale=2.0**100,
        weights=zstd(struct.pack("<H", 512) * tiles * rank),
        left=zstd(b"\x80" * ROWS * 2 * rank),
        right=zstd(b"\x80" * COLUMNS * 3 * rank),
    )
    factors.sections[BOUND] = struct.pack("<ff", 2.0**100, 2.0**100)
    decoded = np.frombuffer(decode_payload(FACTORS, SPEC, factors.seal()), np.uint8)
    escaped = ~np.isfinite(values_of(words(), "BF16"))
    assert np.isfinite(values_of(decoded, "BF16")[~escaped]).all()


CHUNKS: dict[str, Callable[[Parts], None]] = {
    "an escape too many": lambda p: p.change(0, ESCAPE, "raw", 0, p.segments[0][ESCAPE] + bytes(2)),
    "an escape too few": lambda p: p.change(0, ESCAPE, "raw", 0, p.segments[0][ESCAPE][:-2]),
    "half an escape too few": lambda p: p.change(0, ESCAPE, "raw", 0, p.segments[0][ESCAPE][:-1]),
    "no escapes": lambda p: p.change(0, ESCAPE, "raw", 0, b""),
    "constant escapes": lambda p: p.change(0, ESCAPE, "constant", 0, b"\0"),
    "escapes by zstd": lambda p: p.change(0, ESCAPE, "zstd", 0, zstd(p.segments[0][ESCAPE])),
    "escapes by rans": lambda p: p.change(0, ESCAPE, "rans", 0, bytes(128)),
    "symbols that are all kept": lambda p: p.change(0, SYMBOL, "constant", 0, b"\xff"),
    "symbols of which none is kept": lambda p: p.change(0, SYMBOL, "constant", 0, b"\0"),
    "symbols of an unknown table": lambda p: p.change(
        0, SYMBOL, "rans", 255, p.segments[0][SYMBOL]
    ),
    "symbols cut short": lambda p: p.change(0, SYMBOL, "rans", 0, p.segments[0][SYMBOL][:-2]),
    "raw symbols a byte short": lambda p: p.change(0, SYMBOL, "raw", 0, bytes(CHUNK - 1)),
    "low bits by rans": lambda p: p.change(0, LOW, "rans", 0, bytes(128)),
    "low bits a byte short": lambda p: p.change(0, LOW, "raw", 0, p.segments[0][LOW][:-1]),
    "low bits too wide": lambda p: p.change(0, LOW, "constant", 0, b"\xff"),
    "low bits too wide by zstd": lambda p: p.change(0, LOW, "zstd", 0, zstd(b"\xff" * CHUNK)),
    "low bits that declare a terabyte": lambda p: p.change(
        0, LOW, "zstd", 0, frame_declaring(TERABYTE)
    ),
    "an unknown coder": lambda p: p.change(0, SYMBOL, 7, 0, p.segments[0][SYMBOL]),
}


@pytest.mark.parametrize("case", CHUNKS)
def test_chunks(each_kernel: str, low_bits: Parts, decode_payload: Decode, case: str) -> None:
    CHUNKS[case](low_bits)
    refused(low_bits, LOW_BITS, decode_payload)


@pytest.mark.parametrize("dtype", sorted(DTYPES.keys() - set(bounded.FLOATS)))
def test_a_tensor_of_another_dtype(low_bits: Parts, decode_payload: Decode, dtype: str) -> None:
    elements = SPEC.elements * 16 // DTYPES[dtype].bits
    refused(low_bits, LOW_BITS, decode_payload, TensorSpec("t", dtype, (elements // 64, 64)))
    refused(low_bits, LOW_BITS, decode_payload, TensorSpec("t", dtype, (ROWS, COLUMNS)))


def test_a_block_type(low_bits: Parts, decode_payload: Decode) -> None:
    refused(low_bits, LOW_BITS, decode_payload, TensorSpec("t", "Q4_0", (8192, 32)))


@pytest.mark.parametrize("shape", [(1 << 40, 64), (128, 1 << 40), (1 << 60,), (0, 64), ()], ids=str)
@pytest.mark.parametrize("kind", ["low_bits", "factors"])
def test_another_shape(request: pytest.FixtureRequest, kind: str, shape: tuple[int, ...]) -> None:
    """A head is read before anything of the tensor's size is allocated."""
    pipe = LOW_BITS if kind == "low_bits" else FACTORS
    sealed = request.getfixturevalue(kind).seal()
    length = payload.peek_length(sealed[:64], len(sealed))
    with at_most_more(MEMORY), pytest.raises(IntegrityError):
        pipe.read_head(sealed[:length], TensorSpec("t", "BF16", shape), len(sealed))


def test_rows_too_long_for_factors(factors: Parts) -> None:
    """A prediction takes memory per row, so it is refused where an encoder never makes one."""
    rows, columns = 32, 1 << 21
    chunks = rows * columns // 131_072
    factors.sections[PACK] = struct.pack("<I", 131_072)
    factors.sections[BOUND] = struct.pack("<f", 1.0) * chunks
    factors.sections[TILE_SVD] = factors_with(
        factors.sections[TILE_SVD],
        height=rows,
        width=columns,
        weights=zstd(bytes(2)),
        left=zstd(bytes(rows)),
        right=zstd(bytes(columns)),
    )
    factors.directory = np.resize(factors.directory, chunks)
    factors.directory["segments"] = 0
    factors.segments = [[b""] * factors.directory["segments"].shape[1]] * chunks
    sealed = factors.seal()
    length = payload.peek_length(sealed[:64], len(sealed))
    spec = TensorSpec("t", "BF16", (rows, columns))
    with pytest.raises(IntegrityError, match="tile_svd"):
        FACTORS.read_head(sealed[:length], spec, len(sealed))


@pytest.mark.parametrize("kind", ["low_bits", "table", "factors"])
def test_every_bit_of_the_head_is_guarded(
    request: pytest.FixtureRequest, decode_payload: Decode, kind: str
) -> None:
    pipe = {"low_bits": LOW_BITS, "table": TABLE, "factors": FACTORS}[kind]
    sealed = request.getfixturevalue(kind).seal()
    for bit in range(8 * payload.peek_length(sealed[:64], len(sealed))):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((IntegrityError, FormatError)):
            decode_payload(pipe, SPEC, bytes(changed))


@pytest.mark.parametrize("kind", ["low_bits", "table", "factors"])
def test_random_damage_behind_right_checksums(
    request: pytest.FixtureRequest, decode_payload: Decode, kind: str
) -> None:
    """Whatever a head says, the outcome is an error of ours or bytes for the digest to reject."""
    pipe = {"low_bits": LOW_BITS, "table": TABLE, "factors": FACTORS}[kind]
    sealed = request.getfixturevalue(kind).seal()
    length = payload.peek_length(sealed[:64], len(sealed))
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(600):
        head = bytearray(sealed[:length])
        for at in rng.integers(16, length, rng.integers(1, 4)).tolist():
            head[at] = int(rng.integers(0, 256))
        try:
            decoded = decode_payload(pipe, SPEC, resealed(bytes(head)) + sealed[length:])
        except UnweightError:
            refused += 1
        else:
            assert len(decoded) == SPEC.nbytes
    assert refused > 50


def test_random_damage_of_chunks_behind_right_checksums(
    each_kernel: str, factors: Parts, decode_payload: Decode
) -> None:
    rng = np.random.default_rng(2)
    undamaged = factors.segments
    for _ in range(200):
        factors.segments = [list(chunk) for chunk in undamaged]
        chunk, stream = int(rng.integers(0, 2)), int(rng.integers(0, len(undamaged[0])))
        data = bytearray(factors.segments[chunk][stream])
        if data:
            data[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
        factors.segments[chunk][stream] = bytes(data)
        try:
            decoded = decode_payload(FACTORS, SPEC, factors.seal())
        except IntegrityError:
            continue
        assert len(decoded) == SPEC.nbytes
