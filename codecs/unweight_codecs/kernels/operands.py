"""What kernels work on: constants of the coder, and the records that go in and out.

All arrays are C-contiguous. A *span* is a run of whole chunks of one tensor (its last chunk may be
partial); positions count symbols from the start of the span. Symbol and context arrays are padded
to whole groups of 128.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Frequencies = NDArray[np.uint16]  # shape (tables, 256); each row sums to 4096, unused symbols are 0

LANES = 32
GROUP = 128
CONTEXT_RUN = 32
PROBABILITY_BITS = 12
SLOTS = 1 << PROBABILITY_BITS
STATE_LOW = 1 << 16
ALPHABET = 256
SAMPLING_STRIDE = 4  # one in so many stretches of words, or of blocks, is counted
COST_BITS = 12  # code lengths are counted in 1/4096 bit
LLOYD_ITERATIONS = 3  # more gain nothing measurable
MAX_TABLE_BYTES = 2 + 2 * ALPHABET  # of one table, serialised
MAX_RANK = 16  # of low-rank factors

# A stream of a chunk, coded by rANS: ``length`` bytes at ``offset`` of the coded buffer hold
# ``count`` symbols from symbol ``start`` of the span, in one ``table`` unless they have contexts.
SEGMENT = np.dtype(
    [
        ("offset", "<u8"),
        ("start", "<u8"),
        ("length", "<u4"),
        ("count", "<u4"),
        ("table", "<u4"),
        ("reserved", "<u4"),
    ]
)

# A chunk of 16-bit floats: offsets of its raw planes (low 8 bits if there are two, then the top
# plane) and of its escapes.
CHUNK16 = np.dtype(
    [
        ("symbol", SEGMENT),
        ("plane", "<u8", 2),
        ("escape", "<u8"),
        ("escape_count", "<u8"),
    ]
)

# A chunk of words on levels: offsets of its packed low bits and of its escapes, which are words.
LEVEL_CHUNK = np.dtype(
    [
        ("symbol", SEGMENT),
        ("low", "<u8"),
        ("escape", "<u8"),
        ("escape_count", "<u4"),
        ("step", "<f4"),
    ]
)


def padded(count: int) -> int:
    """Return ``count`` rounded up to whole groups."""
    return -(-count // GROUP) * GROUP


@dataclass(frozen=True, slots=True)
class FloatSplit:
    """How a float word splits into a symbol and raw bits (see ``specs/planes.md``).

    Attributes:
        word_bytes: 1, 2, 4 or 8.
        exponent_bits: Width of the exponent field.
        mantissa_bits: Width of the mantissa field.
        top_bits: Mantissa bits that belong to the symbol (m).
        base: First exponent of the dense window.
        window: Exponents in the window; symbols from ``window << top_bits`` up are escapes.
    """

    word_bytes: int
    exponent_bits: int
    mantissa_bits: int
    top_bits: int
    base: int
    window: int

    @property
    def raw_bits(self) -> int:
        """Bits of a word that are not part of the symbol: the sign and the low mantissa."""
        return 1 + self.mantissa_bits - self.top_bits

    @property
    def escape_limit(self) -> int:
        """Symbols from here up are escapes."""
        return self.window << self.top_bits

    @property
    def escape_bytes(self) -> int:
        """Bytes of one escaped exponent."""
        return 2 if self.exponent_bits > 8 else 1


@dataclass(frozen=True, slots=True)
class LevelForm:
    """A grid of integer levels, of which a chunk's step makes values (see ``specs/levels.md``).

    Attributes:
        low_bits: Bits of a level that are stored raw, below its symbol (0 to 8).
        limit: Symbols below it are grid points; ``limit`` itself is an escape, a word that is
            stored as it is.
        table: The level of every symbol, int32; None where levels are equally spaced. Only without
            low bits.
    """

    low_bits: int
    limit: int
    table: NDArray[np.int32] | None = None

    @property
    def bias(self) -> int:
        """What equally spaced levels have added, so that none is negative."""
        return self.limit << self.low_bits >> 1

    def middles(self) -> NDArray[np.float64]:
        """Return the values between which the levels of a table are the nearest ones."""
        levels = np.zeros(0) if self.table is None else self.table.astype(np.float64)
        return (levels[1:] + levels[:-1]) / 2


@dataclass(frozen=True, slots=True)
class LowRank:
    """Low-rank factors of the tiles of a matrix, in integers with one scale.

    The word in row i and column j, which is in row a and column b of tiles, has the prediction
    scale * sum over k of weights[a, b, k] * left[i, b, k] * right[a, k, j].

    Attributes:
        tile: Rows and columns of a tile; those at the end of the matrix may be smaller.
        scale: Of the integer sums.
        weights: uint16, shape (tile rows, tile columns, rank).
        left: int8, shape (rows of the matrix, tile columns, rank).
        right: int8, shape (tile rows, rank, columns of the matrix).
    """

    tile: tuple[int, int]
    scale: np.float32
    weights: NDArray[np.uint16]
    left: NDArray[np.int8]
    right: NDArray[np.int8]

    @property
    def nbytes(self) -> int:
        """Bytes of all factors, uncompressed."""
        return self.weights.nbytes + self.left.nbytes + self.right.nbytes


@dataclass(frozen=True, slots=True)
class Contexts:
    """Which frequency table codes each symbol.

    Attributes:
        of: A table's index for every ``run`` symbols, padded to whole groups of symbols.
        run: 1, or ``CONTEXT_RUN`` where neighbours share a context.
    """

    of: Bytes
    run: int = 1


@dataclass(frozen=True, slots=True)
class Split16:
    """16-bit floats, split in one pass.

    Attributes:
        symbols: Padded to whole groups.
        low: The plane of the low 8 raw bits; empty where there are fewer than 8.
        top: The top plane, packed; empty where the raw bits fill bytes.
        escapes: Exponents of the escaped words, a byte each.
        escape_counts: Escapes of each chunk.
    """

    symbols: Bytes
    low: Bytes
    top: Bytes
    escapes: Bytes
    escape_counts: NDArray[np.uint64]
