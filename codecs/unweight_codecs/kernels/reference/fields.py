"""Fields of quantised blocks, and what some say about others."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.kernels.reference.bits import BitReference

_BYTE = 8  # bits


class FieldReference(BitReference):
    """Copies the bytes of a field together, then unpacks them."""

    def take_field(self, blocks: Bytes, first: int, size: int, width: int) -> Bytes:
        """See ``Kernels.take_field``."""
        dense = np.ascontiguousarray(blocks[:, first : first + size]).reshape(-1)
        return (
            dense if width == _BYTE else self.unpack_bits(dense, dense.size * _BYTE // width, width)
        )

    def put_field(self, values: Bytes, first: int, size: int, width: int, blocks: Bytes) -> None:
        """See ``Kernels.put_field``."""
        dense = values if width == _BYTE else self.pack_bits(values, width)
        blocks[:, first : first + size] = dense.reshape(len(blocks), size)

    def zero_points(
        self, halves: Sequence[Bytes], factor: float, below: int, contexts: int
    ) -> Bytes:
        """See ``Kernels.zero_points``.

        Float64 arithmetic on two F16 values rounds the same way on every processor.
        """
        d, m = _float64(*halves[:2]), _float64(*halves[2:])
        with np.errstate(all="ignore"):
            zero = np.rint(-m / d * factor) - below
        zero[~np.isfinite(zero)] = 0
        found: Bytes = np.clip(zero, 0, contexts - 1).astype(np.uint8)
        return found


def _float64(low: Bytes, high: Bytes) -> NDArray[np.float64]:
    return np.stack([low, high], axis=1).view("<f2")[:, 0].astype(np.float64)
