"""Dense packing of values of a few bits."""

import numpy as np

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes


class BitReference:
    """Packs and unpacks through one byte per bit."""

    def pack_bits(self, values: Bytes, width: int) -> Bytes:
        """See ``Kernels.pack_bits``."""
        bits = np.unpackbits(values[:, None], axis=1, count=width, bitorder="little")
        return np.packbits(bits.reshape(-1), bitorder="little")

    def unpack_bits(self, packed: Bytes, count: int, width: int) -> Bytes:
        """See ``Kernels.unpack_bits``."""
        if packed.size * 8 < count * width:
            raise IntegrityError("packed values are cut short")
        bits = np.unpackbits(packed, count=count * width, bitorder="little").reshape(count, width)
        return np.packbits(bits, axis=1, bitorder="little").reshape(count)
