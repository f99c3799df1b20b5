"""Comparison of buffers on the device: equal bytes, and sizes of errors (``comparison.cu``).

Buffers stay where they are; a few bytes of result come back. Results do not depend on the device
or on how many threads it runs at a time: sums of floats are formed in one fixed order.
"""

from typing import Final

import numpy as np

from unweight_codecs.bounded.float_words import FLOATS
from unweight_codecs.errors import IntegrityError, UsageError, quoted
from unweight_codecs.tensor_spec import DTYPES
from unweight_gpu import kernels
from unweight_gpu.device.buffers import require_buffer
from unweight_gpu.device.interface import Array, Device

VECTOR_BYTES: Final = 16  # bytes that a thread loads at a time, and what buffers must be aligned to
THREADS: Final = 256  # of a thread block
_SHARE: Final = 4096 * VECTOR_BYTES  # what a thread block of ``squared_error`` sums up
_MAX_THREAD_BLOCKS: Final = 2048  # enough for any device, where threads take vector after vector
_NONE: Final = np.iinfo(np.uint64).max
# The result of the kernels ``squared_error_…`` and ``total_error``.
_ERRORS: Final = np.dtype(
    [("square", "<f8"), ("error", "<f8"), ("largest", "<f8"), ("broken", "<u8")]
)


class BufferComparison:
    """The kernels of ``comparison.cu``, compiled for a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._module = device.load(kernels.source("comparison"))

    def first_difference(self, left: Array, right: Array) -> int | None:
        """Return the offset of the first byte in which buffers differ, None if they are equal.

        Raises UsageError for buffers of different lengths or not aligned to 16 bytes.
        """
        _require_pair(left, right)
        if not left.nbytes:
            return None
        first = self._device.array(np.full(1, _NONE, np.uint64))
        self._module.get_function("first_difference")(
            (thread_blocks(left.nbytes),), (THREADS,), (left, right, np.uint64(left.nbytes), first)
        )
        found = int(self._device.to_host(first)[0])
        return None if found == _NONE else found

    def squared_error(
        self, original: Array, decoded: Array, dtype: str
    ) -> tuple[float, float, float]:
        """Return sums of squares of the finite original and of the error, and the largest error.

        What ``unweight_codecs.bounded.levels.squared_error`` is for words in host memory, summed
        in another order. A finite word that became NaN makes the last two NaN.

        Args:
            original: Words of ``dtype``, in an array of any type.
            decoded: As many bytes.
            dtype: ``BF16``, ``F16`` or ``F32``.

        Raises:
            IntegrityError: A word that is not finite was decoded to another one.
            UsageError: The dtype is another, or the buffers are not of one length, whole words and
                aligned to 16 bytes.
        """
        if dtype not in FLOATS:
            hint = f"one of {', '.join(FLOATS)}"
            raise UsageError(f"the error of {quoted(dtype)} words is not defined", hint=hint)
        _require_pair(original, decoded)
        if original.nbytes % (DTYPES[dtype].bits // 8):
            raise UsageError(f"{original.nbytes} bytes are not a whole number of {dtype} words")
        if not original.nbytes:
            return 0.0, 0.0, 0.0
        shares = -(-original.nbytes // _SHARE)
        partial = self._device.empty(shares * _ERRORS.itemsize, np.uint8)
        total = self._device.empty(_ERRORS.itemsize, np.uint8)
        self._module.get_function(f"squared_error_{dtype.lower()}")(
            (shares,), (THREADS,), (original, decoded, np.uint64(original.nbytes), partial)
        )
        self._module.get_function("total_error")(
            (1,), (THREADS,), (partial, np.uint64(shares), total)
        )
        square, error, largest, broken = self._device.to_host(total).view(_ERRORS)[0].item()
        if broken != _NONE:
            raise IntegrityError(f"weight {broken} is not finite and does not decode to itself")
        return square, error, largest


def thread_blocks(nbytes: int) -> int:
    """Return how many thread blocks read a buffer of so many bytes, a vector per thread."""
    vectors = -(-nbytes // VECTOR_BYTES)
    return min(-(-vectors // THREADS), _MAX_THREAD_BLOCKS)


def _require_pair(left: Array, right: Array) -> None:
    for array, what in ((left, "the first buffer"), (right, "the second buffer")):
        require_buffer(array, VECTOR_BYTES, what)
    if left.nbytes != right.nbytes:
        raise UsageError(f"buffers of {left.nbytes} and {right.nbytes} bytes cannot be compared")
