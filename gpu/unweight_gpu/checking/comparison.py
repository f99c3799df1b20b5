"""Verification on the device: equal bytes, errors, histograms (``verify.cu``, ``histogram.cu``).

Buffers stay where they are; a few bytes of result come back. Results do not depend on the device
or on how many threads it runs at a time: sums of floats are formed in one fixed order.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.float_words import FLOATS
from unweight_codecs.errors import IntegrityError, UsageError, quoted
from unweight_codecs.kernels.operands import SAMPLING_STRIDE
from unweight_codecs.tensor_spec import DTYPES
from unweight_gpu import kernels
from unweight_gpu.device.buffers import require_buffer
from unweight_gpu.device.interface import Array, Device

PIECE: Final = 16  # bytes that a thread loads at a time, and what buffers must be aligned to
MAX_BITS: Final = 14  # of the field of a histogram
_THREADS: Final = 256
_SEGMENT: Final = 4096 * PIECE  # bytes that a block of ``squared_error`` sums up
_COUNTERS_LOG2: Final = 13  # bins that a block of ``histogram`` has counters for
_MAX_THREAD_BLOCKS: Final = 2048  # enough for any device, where threads take piece after piece
_NONE: Final = np.iinfo(np.uint64).max
# The result of the kernels ``squared_error_…`` and ``total_error``.
_ERRORS: Final = np.dtype(
    [("square", "<f8"), ("error", "<f8"), ("largest", "<f8"), ("broken", "<u8")]
)


class Verifier:
    """The verification kernels, compiled for a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._module = device.load(kernels.source("verify"))

    def first_difference(self, left: Array, right: Array) -> int | None:
        """Return the offset of the first byte in which buffers differ, None if they are equal.

        Raises UsageError for buffers of different lengths or not aligned to 16 bytes.
        """
        _require_pair(left, right)
        if not left.nbytes:
            return None
        first = self._device.array(np.full(1, _NONE, np.uint64))
        self._module.get_function("first_difference")(
            (_blocks(left.nbytes),), (_THREADS,), (left, right, np.uint64(left.nbytes), first)
        )
        found = int(self._device.to_host(first)[0])
        return None if found == _NONE else found

    def squared_error(
        self, original: Array, decoded: Array, dtype: str
    ) -> tuple[float, float, float]:
        """Return sums of squares of the finite original and of the error, and the largest error.

        What ``unweight_codecs.bounded.levels.squared_error`` is for words in host memory, summed
        in another order. A word that became no number makes the last two no number.

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
            raise UsageError(f"{original.nbytes} bytes are no whole number of {dtype} words")
        if not original.nbytes:
            return 0.0, 0.0, 0.0
        segments = -(-original.nbytes // _SEGMENT)
        partial = self._device.empty(segments * _ERRORS.itemsize, np.uint8)
        total = self._device.empty(_ERRORS.itemsize, np.uint8)
        self._module.get_function(f"squared_error_{dtype.lower()}")(
            (segments,), (_THREADS,), (original, decoded, np.uint64(original.nbytes), partial)
        )
        self._module.get_function("total_error")(
            (1,), (_THREADS,), (partial, np.uint64(segments), total)
        )
        square, error, largest, broken = self._device.to_host(total).view(_ERRORS)[0].item()
        if broken != _NONE:
            raise IntegrityError(f"weight {broken} is not finite and does not decode to itself")
        return square, error, largest

    def histogram(self, words: Array, shift: int, bits: int, block: int = 0) -> NDArray[np.uint32]:
        """Count the values of a field of words, as ``unweight_codecs.kernels`` does.

        Args:
            words: Integers of 1, 2, 4 or 8 bytes.
            shift: Lowest bit of the field.
            bits: Width of the field, 1 to 14. What of it lies beyond the word is zero.
            block: When given, only one in ``SAMPLING_STRIDE`` blocks of so many words is counted,
                the first one included; a power of two, and at least 16 bytes.

        Raises:
            UsageError: An argument is not as above, or the words are not aligned to 16 bytes.
        """
        require_buffer(words, PIECE, "the buffer of words")
        size = words.dtype.itemsize
        if size not in (1, 2, 4, 8):
            raise UsageError(f"no histogram of words of {size} bytes")
        if not (0 <= shift < size * 8 and 1 <= bits <= MAX_BITS):
            raise UsageError(f"no histogram of {bits} bits from bit {shift} of {size * 8}")
        if block and (block < 0 or block & (block - 1) or block * size < PIECE):
            raise UsageError(f"no histogram of blocks of {block} words of {size} bytes")
        bins = self._device.array(np.zeros(1 << bits, np.uint32))
        if words.nbytes:
            mask = (1 << min(bits, size * 8 - shift)) - 1
            block_log2 = (block * size // PIECE).bit_length() - 1 if block else 0
            skip_log2 = SAMPLING_STRIDE.bit_length() - 1 if block else 0
            field = (np.uint32(value) for value in (size, shift, mask, bits, block_log2, skip_log2))
            self._module.get_function("histogram")(
                (_blocks(words.nbytes), 1 << max(0, bits - _COUNTERS_LOG2)),
                (_THREADS,),
                (words, np.uint64(words.nbytes), *field, bins),
            )
        return self._device.to_host(bins)


def _blocks(nbytes: int) -> int:
    pieces = -(-nbytes // PIECE)
    return min(-(-pieces // _THREADS), _MAX_THREAD_BLOCKS)


def _require_pair(left: Array, right: Array) -> None:
    for array, what in ((left, "the first buffer"), (right, "the second buffer")):
        require_buffer(array, PIECE, what)
    if left.nbytes != right.nbytes:
        raise UsageError(f"buffers of {left.nbytes} and {right.nbytes} bytes cannot be compared")
