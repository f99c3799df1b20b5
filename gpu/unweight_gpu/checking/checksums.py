"""XXH3-64 of ranges of a device buffer: checksums of chunks, digests of tensors (``xxh3.cu``).

A range is a chain of blocks of 1,024 bytes. One warp per range is enough for the many chunks of a
batch; of long ranges, many warps sum up the blocks first, and one follows the chain that is left.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError, UsageError
from unweight_gpu import kernels
from unweight_gpu.device.buffers import require_buffer
from unweight_gpu.device.interface import Array, Device

LONG: Final = 1 << 20  # bytes from which a range is worth a launch and memory of its own
_WARP: Final = 32
_THREADS: Final = 128
_BLOCK: Final = 1024  # bytes between two scramblings of the accumulators
_ACCUMULATORS: Final = 8
_RUN: Final = 16  # blocks that a warp sums up

_Ranges = NDArray[np.uint64]
_Results = tuple[NDArray[np.uint64], NDArray[np.uint32]]


class Checksums:
    """The XXH3 kernels, compiled for a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._module = device.load(kernels.source("xxh3"))

    def digests(self, data: Array, ranges: _Ranges) -> NDArray[np.uint64]:
        """Return the XXH3-64 (seed 0, default secret) of each range of a buffer.

        Args:
            data: The buffer, an array of any type.
            ranges: Shape (n, 2), in host memory: offset and length in bytes. Ranges may overlap.
                They are read fastest from addresses that are multiples of 8.

        Raises:
            IntegrityError: A range does not lie in the buffer.
            UsageError: The ranges are not as above, or the buffer is not contiguous.
        """
        require_buffer(data, 1, "the buffer")
        if ranges.dtype != np.uint64 or ranges.ndim != 2 or ranges.shape[1] != 2:
            raise UsageError(f"ranges are pairs of uint64, not {ranges.dtype} of {ranges.shape}")
        found = np.zeros(len(ranges), np.uint64)
        codes = np.zeros(len(ranges), np.uint32)
        # What lies outside is not long: its length would decide how much memory is asked for.
        is_long = (ranges[:, 1] >= LONG) & (ranges[:, 1] <= data.nbytes)
        for digests_of, chosen in ((self._of_short, ~is_long), (self._of_long, is_long)):
            if chosen.any():
                found[chosen], codes[chosen] = digests_of(data, ranges[chosen])
        if codes.any():
            first = int(np.flatnonzero(codes)[0])
            offset, length = ranges[first].tolist()
            raise IntegrityError(
                f"range {first}, {length} bytes from {offset}, is not in the {data.nbytes} bytes"
                " of the buffer"
            )
        return found

    def _of_short(self, data: Array, ranges: _Ranges) -> _Results:
        """Digests and codes of ranges, a warp for each."""
        count = len(ranges)
        digests, codes = self._device.empty(count, np.uint64), self._device.empty(count, np.uint32)
        buffer = (data, np.uint64(data.nbytes), self._device.array(ranges), np.uint32(count))
        self._module.get_function("xxh3_ranges")(
            (-(-count * _WARP // _THREADS),), (_THREADS,), (*buffer, digests, codes)
        )
        return self._device.to_host(digests), self._device.to_host(codes)

    def _of_long(self, data: Array, ranges: _Ranges) -> _Results:
        """Digests and codes of ranges of ``LONG`` bytes or more, in two steps."""
        count = len(ranges)
        own = (ranges[:, 1] - np.uint64(1)) // np.uint64(_BLOCK)
        ends = np.cumsum(own, dtype=np.uint64)
        blocks = np.uint64(ends[-1])
        sums = self._device.empty((int(blocks), _ACCUMULATORS), np.uint64)
        digests, codes = self._device.empty(count, np.uint64), self._device.empty(count, np.uint32)
        places = (self._device.array(ranges), self._device.array(ends - own))
        buffer = (data, np.uint64(data.nbytes), *places)
        self._module.get_function("xxh3_blocks")(
            (-(-int(blocks) * _WARP // (_RUN * _THREADS)),),
            (_THREADS,),
            (*buffer, np.uint32(count), blocks, sums),
        )
        self._module.get_function("xxh3_chains")(
            (count,), (_WARP,), (*buffer, blocks, sums, digests, codes)
        )
        return self._device.to_host(digests), self._device.to_host(codes)
