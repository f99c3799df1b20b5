"""XXH3-64 of ranges of a device buffer: checksums of chunks, digests of tensors (``xxh3.cu``).

A range is a chain of blocks of 1,024 bytes. One warp per range is enough for the many chunks of a
batch; of long ranges, many warps sum up the blocks first, and one follows what is left of the chain.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError, UsageError
from unweight_gpu.backend import Backend, DeviceArray, require_buffer

LONG: Final = 1 << 20  # bytes from which a range is worth a launch and memory of its own
_MODULE: Final = "xxh3"
_WARP: Final = 32
_THREADS: Final = 128
_BLOCK: Final = 1024  # bytes between two scramblings of the accumulators
_ACCUMULATORS: Final = 8
_RUN: Final = 16  # blocks that a warp sums up
_OUTSIDE: Final = 1  # the code of a range that does not lie in the buffer


def xxh3_digests(
    backend: Backend, data: DeviceArray, ranges: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return the XXH3-64 (seed 0, default secret) of each range of a buffer.

    Args:
        backend: Where the buffer is.
        data: The buffer; an array of any type.
        ranges: Shape (n, 2), in host memory: offset and length in bytes. Ranges may overlap. They
            are read fastest from addresses that are multiples of 8.

    Raises:
        IntegrityError: A range does not lie in the buffer.
        UsageError: The ranges are not as above.
    """
    require_buffer(data, 1, "the buffer")
    if ranges.dtype != np.uint64 or ranges.ndim != 2 or ranges.shape[1] != 2:
        raise UsageError(f"ranges must be pairs of uint64, not {ranges.dtype}{list(ranges.shape)}")
    found = np.zeros(len(ranges), np.uint64)
    codes = np.zeros(len(ranges), np.uint32)
    # What lies outside is never long: its length would decide how much memory is asked for.
    is_long = (ranges[:, 1] >= LONG) & (ranges[:, 1] <= data.nbytes)
    for digests_of, chosen in ((_of_short, ~is_long), (_of_long, is_long)):
        if chosen.any():
            part = np.ascontiguousarray(ranges[chosen])
            found[chosen], codes[chosen] = digests_of(backend, data, part)
    if codes.any():
        first = int(np.flatnonzero(codes)[0])
        offset, length = (int(value) for value in ranges[first])
        raise IntegrityError(
            f"range {first}, {length} bytes from {offset}, is not in a buffer of {data.nbytes} bytes"
        )
    return found


_Results = tuple[NDArray[np.uint64], NDArray[np.uint32]]


def _of_short(backend: Backend, data: DeviceArray, ranges: NDArray[np.uint64]) -> _Results:
    """Digests and codes of ranges, a warp for each."""
    digests = backend.empty(len(ranges), np.uint64)
    codes = backend.empty(len(ranges), np.uint32)
    backend.get_function(_MODULE, "xxh3_ranges")(
        (-(-len(ranges) * _WARP // _THREADS),),
        (_THREADS,),
        (data, np.uint64(data.nbytes), backend.array(ranges), np.uint32(len(ranges)), digests, codes),
    )
    return backend.to_host(digests), backend.to_host(codes)


def _of_long(backend: Backend, data: DeviceArray, ranges: NDArray[np.uint64]) -> _Results:
    """Digests and codes of ranges of ``LONG`` bytes or more, in two steps."""
    own = (ranges[:, 1] - np.uint64(1)) // np.uint64(_BLOCK)
    firsts = np.concatenate([np.zeros(1, np.uint64), np.cumsum(own, dtype=np.uint64)])
    blocks = int(firsts[-1])
    sums = backend.empty((blocks, _ACCUMULATORS), np.uint64)
    digests = backend.empty(len(ranges), np.uint64)
    codes = backend.empty(len(ranges), np.uint32)
    buffer = (data, np.uint64(data.nbytes), backend.array(ranges), backend.array(firsts))
    backend.get_function(_MODULE, "xxh3_blocks")(
        (-(-blocks * _WARP // (_RUN * _THREADS)),),
        (_THREADS,),
        (*buffer, np.uint32(len(ranges)), np.uint64(blocks), sums),
    )
    backend.get_function(_MODULE, "xxh3_chains")(
        (len(ranges),), (_WARP,), (*buffer, np.uint64(blocks), sums, digests, codes)
    )
    return backend.to_host(digests), backend.to_host(codes)
