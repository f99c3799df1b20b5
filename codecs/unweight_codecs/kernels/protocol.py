"""What every implementation of the kernels offers.

``reference`` defines each operation in NumPy; ``native`` replaces those that have a version in C.
Arrays are C-contiguous unless a method says otherwise. Every method that decodes raises
IntegrityError for damaged input, and no method changes its arguments except those it says it fills.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels.operands import (
    Bytes,
    Contexts,
    FloatSplit,
    Frequencies,
    LevelForm,
    LowRank,
    Split16,
)


class Kernels(Protocol):
    """One implementation of the kernels."""

    name: str

    # Counting, and frequency tables

    def histogram(
        self, words: NDArray[np.generic], shift: int, bits: int, stretch: int = 0
    ) -> NDArray[np.uint32]:
        """Count the values of the ``bits`` (at most 14) bits above bit ``shift`` of each word.

        With ``stretch`` only one in ``SAMPLING_STRIDE`` stretches of so many words is counted, the
        first one included.
        """
        ...

    def normalise(self, counts: NDArray[np.int64]) -> Frequencies:
        """Scale histograms (rows, 256) to frequencies; each row sums to 4096.

        Used symbols get at least 1. A row without counts gives all to symbol 0.
        """
        ...

    def lloyd(
        self,
        counts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        choice: NDArray[np.uint8],
        number: int,
    ) -> tuple[Frequencies, NDArray[np.uint8], int]:
        """Refine which of ``number`` tables codes each histogram, by Lloyd's algorithm.

        Args:
            counts: Histograms, shape (rows, 256).
            lengths: Code length of every frequency from 0 to 4096, in 2**-12 bit.
            choice: First choice, shape (rows,), without gaps in its numbering.
            number: Tables in it, at most 256.

        Returns the tables in use, the table of each row, and the cost in bits, tables included.
        """
        ...

    def serialise(self, frequencies: Frequencies) -> bytes:
        """Write tables (rows, 256) one after the other, as ``specs/tables.md`` says."""
        ...

    def parse(self, data: bytes, at: int, number: int) -> tuple[Frequencies, int]:
        """Read ``number`` tables at ``at``; return them and the position after them.

        Raises IntegrityError for tables that are cut short or do not sum to 4096.
        """
        ...

    # Entropy coding

    def rans_encode(
        self,
        symbols: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
    ) -> Bytes:
        """Encode each segment (``start``, ``count``, ``table``) of the padded symbols.

        Fills in ``offset`` and ``length`` of the segments, which index the returned buffer; each
        starts at a multiple of 8 bytes. With ``contexts`` the table is chosen per symbol.
        """
        ...

    def rans_decode(
        self,
        coded: Bytes,
        segments: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Contexts | None,
        symbols: Bytes,
    ) -> None:
        """Decode each segment into the padded ``symbols``."""
        ...

    # Bits, and fields of quantised blocks

    def pack_bits(self, values: Bytes, width: int) -> Bytes:
        """Pack the low ``width`` (1 to 8) bits of each value; value i starts at bit i * width."""
        ...

    def unpack_bits(self, packed: Bytes, count: int, width: int) -> Bytes:
        """Undo ``pack_bits``; ``packed`` has ``ceil(count * width / 8)`` bytes or more."""
        ...

    def take_field(self, blocks: Bytes, first: int, size: int, width: int) -> Bytes:
        """Unpack values of ``width`` bits from the ``size`` bytes at ``first`` of each block.

        The rows of ``blocks``, shape (blocks, bytes), are dense; they may lie apart.
        """
        ...

    def put_field(self, values: Bytes, first: int, size: int, width: int, blocks: Bytes) -> None:
        """Undo ``take_field`` into ``blocks``."""
        ...

    def zero_points(
        self, halves: Sequence[Bytes], factor: float, below: int, contexts: int
    ) -> Bytes:
        """Return a context from the scale d and the minimum m of each block.

        It is -m / d * ``factor``, rounded to even, less ``below``, clipped to the range of
        ``contexts``; 0 where d or m is not finite or d is zero.

        Args:
            halves: Low and high bytes of d, then of m, which are F16.
            factor: Contexts per unit of -m / d.
            below: Rounded values that share context 0.
            contexts: How many there are.
        """
        ...

    # Floats as symbols and raw bits

    def split(self, words: Bytes, count: int, split: FloatSplit) -> tuple[Bytes, Bytes, Bytes]:
        """Split ``count`` words into padded symbols, byte planes (planes, count) and top values."""
        ...

    def collect_escapes(self, words: Bytes, symbols: Bytes, count: int, split: FloatSplit) -> Bytes:
        """Return the exponents of the escaped ones among ``count`` words, as bytes."""
        ...

    def join(
        self,
        symbols: Bytes,
        planes: Sequence[Bytes],
        top: Bytes,
        count: int,
        split: FloatSplit,
        words: Bytes,
    ) -> None:
        """Undo ``split`` into ``words``; escaped ones get their exponents from ``patch``."""
        ...

    def patch(
        self, symbols: Bytes, count: int, split: FloatSplit, escapes: Bytes, words: Bytes
    ) -> None:
        """Put escaped exponents into ``words``; the escapes must fit the symbols exactly."""
        ...

    # Floats on levels

    def quantise(
        self,
        words: Bytes,
        dtype: str,
        escaped: NDArray[np.bool_] | None,
        step: np.float32,
        form: LevelForm,
        prediction: NDArray[np.float32] | None,
    ) -> tuple[Bytes, Bytes]:
        """Return symbols and low bits of words; those of ``form`` without low bits are empty.

        Words that are marked ``escaped``, not finite or off the grid have the symbol ``limit``.
        """
        ...

    def dequantise(
        self,
        symbols: Bytes,
        low: Bytes,
        escapes: Bytes,
        step: np.float32,
        form: LevelForm,
        dtype: str,
        prediction: NDArray[np.float32] | None,
        words: Bytes,
    ) -> None:
        """Turn symbols, low bits and escapes of a chunk into ``words`` of ``dtype``.

        Raises IntegrityError unless there are as many escapes as the symbols ask for.
        """
        ...

    def squared_error(
        self, original: Bytes, decoded: Bytes, dtype: str
    ) -> tuple[float, float, float]:
        """Return sums of squares of the finite original and of its error, and the largest error.

        Raises IntegrityError for a word that is not finite and is decoded to another one.
        """
        ...

    def predict(
        self, factors: LowRank, first: int, count: int, columns: int
    ) -> NDArray[np.float32]:
        """Return the predictions of ``count`` words from word ``first`` of a matrix."""
        ...

    # Several operations in one pass: a kernel that has no such way says so, and its caller goes the
    # way through the parts. The reference never has one.

    def split16(
        self, words: Bytes, count: int, chunk_words: int, split: FloatSplit
    ) -> Split16 | None:
        """Split 16-bit floats and collect their escapes; None without a kernel for it."""
        ...

    def decode16(
        self,
        coded: Bytes,
        chunks: NDArray[np.void],
        frequencies: Frequencies,
        contexts: Bytes | None,
        split: FloatSplit,
        words: Bytes,
    ) -> bool:
        """Decode chunks (``CHUNK16``) of 16-bit floats straight to ``words``.

        False without a kernel for it, or where it declines a chunk: ``words`` then holds anything.
        """
        ...

    def decode_levels(
        self,
        coded: Bytes,
        chunks: NDArray[np.void],
        frequencies: Frequencies,
        form: LevelForm,
        dtype: str,
        prediction: NDArray[np.float32] | None,
        words: Bytes,
    ) -> bool:
        """Decode chunks (``LEVEL_CHUNK``) straight to ``words``: symbols by rANS, low bits raw.

        False without a kernel for it.
        """
        ...
