"""What the stages ask of a kernel implementation."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels.operands import Bytes, Contexts, Frequencies


class Kernels(Protocol):
    """One implementation of the coding kernels. All raise IntegrityError for damaged input."""

    name: str

    def histogram(
        self, words: NDArray[np.generic], shift: int, bits: int, block: int = 0
    ) -> NDArray[np.uint32]:
        """Count the values of the ``bits`` (at most 14) bits above bit ``shift`` of each word.

        With ``block`` only one in ``SAMPLING_STRIDE`` blocks of so many words is counted, the first
        one included.
        """
        ...

    def pack_bits(self, values: Bytes, width: int) -> Bytes:
        """Pack the low ``width`` (1 to 8) bits of each value; value i starts at bit i * width."""
        ...

    def unpack_bits(self, packed: Bytes, count: int, width: int) -> Bytes:
        """Undo ``pack_bits``; ``packed`` has ``ceil(count * width / 8)`` bytes or more."""
        ...

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
        """Decode each segment into the padded ``symbols`` array."""
        ...
