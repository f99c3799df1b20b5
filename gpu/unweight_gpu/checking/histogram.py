"""Histograms of words on the device (``histogram.cu``)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import UsageError
from unweight_codecs.kernels.operands import SAMPLING_STRIDE
from unweight_gpu import kernels
from unweight_gpu.checking.buffer_comparison import THREADS, VECTOR_BYTES, thread_blocks
from unweight_gpu.device.buffers import require_buffer
from unweight_gpu.device.interface import Array, Device

MAX_BITS: Final = 14  # of the field
_COUNTERS_LOG2: Final = 13  # bins that a thread block has counters for


class Histogram:
    """The kernel of ``histogram.cu``, compiled for a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kernel = device.load(kernels.source("histogram")).get_function("histogram")

    def count(self, words: Array, shift: int, bits: int, block: int = 0) -> NDArray[np.uint32]:
        """Count the values of a field of words, as the kernels of ``unweight_codecs`` do.

        Args:
            words: Integers of 1, 2, 4 or 8 bytes.
            shift: Lowest bit of the field.
            bits: Width of the field, 1 to 14. What of it lies beyond the word is zero.
            block: When given, only one in ``SAMPLING_STRIDE`` blocks of so many words is counted,
                the first one included; a power of two, and at least 16 bytes.

        Raises:
            UsageError: An argument is not as above, or the words are not aligned to 16 bytes.
        """
        require_buffer(words, VECTOR_BYTES, "the buffer of words")
        size = words.dtype.itemsize
        if size not in (1, 2, 4, 8):
            raise UsageError(f"no histogram of words of {size} bytes")
        if not (0 <= shift < size * 8 and 1 <= bits <= MAX_BITS):
            raise UsageError(f"no histogram of {bits} bits from bit {shift} of {size * 8}")
        if block and (block < 0 or block & (block - 1) or block * size < VECTOR_BYTES):
            raise UsageError(f"no histogram of blocks of {block} words of {size} bytes")
        bins = self._device.array(np.zeros(1 << bits, np.uint32))
        if words.nbytes:
            mask = (1 << min(bits, size * 8 - shift)) - 1
            run_log2 = (block * size // VECTOR_BYTES).bit_length() - 1 if block else 0
            skip_log2 = SAMPLING_STRIDE.bit_length() - 1 if block else 0
            field = (np.uint32(value) for value in (size, shift, mask, bits, run_log2, skip_log2))
            self._kernel(
                (thread_blocks(words.nbytes), 1 << max(0, bits - _COUNTERS_LOG2)),
                (THREADS,),
                (words, np.uint64(words.nbytes), *field, bins),
            )
        return self._device.to_host(bins)
