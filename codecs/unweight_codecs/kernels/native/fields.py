"""Bits and fields of quantised blocks in C."""

import ctypes
from collections.abc import Sequence
from typing import Final

from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.native.binding import Binding, checked
from unweight_codecs.kernels.operands import Bytes

_PACKING_SPARE: Final = 8  # bytes that packing may write beyond the end


class NativeFields(Binding):
    """Values of a few bits."""

    def pack_bits(self, values: Bytes, width: int) -> Bytes:
        """Pack with SWAR, PEXT or vector code."""
        out = buffers.empty(-(-values.size * width // 8) + _PACKING_SPARE)
        self._library.uw_pack_bits(self._kernel, values, values.size, width, out)
        return out[:-_PACKING_SPARE]

    def unpack_bits(self, packed: Bytes, count: int, width: int) -> Bytes:
        """Unpack with SWAR, PDEP or VPMULTISHIFTQB."""
        out = buffers.empty(count)
        status = self._library.uw_unpack_bits(self._kernel, packed, packed.size, count, width, out)
        checked(status, "packed values are cut short")
        return out

    def take_field(self, blocks: Bytes, first: int, size: int, width: int) -> Bytes:
        """See ``Kernels.take_field``."""
        out = buffers.empty(len(blocks) * size * 8 // width)
        stride = blocks.strides[0]
        self._library.uw_take_field(
            self._kernel, blocks, len(blocks), stride, first, size, width, out
        )
        return out

    def put_field(self, values: Bytes, first: int, size: int, width: int, blocks: Bytes) -> None:
        """See ``Kernels.put_field``."""
        stride = blocks.strides[0]
        self._library.uw_put_field(
            self._kernel, values, len(blocks), stride, first, size, width, blocks
        )

    def zero_points(
        self, halves: Sequence[Bytes], factor: float, below: int, contexts: int
    ) -> Bytes:
        """See ``Kernels.zero_points``."""
        out = buffers.empty(halves[0].size)
        addresses = (ctypes.c_void_p * len(halves))(*(part.ctypes.data for part in halves))
        self._library.uw_zero_points(addresses, out.size, factor, below, contexts, out)
        return out
