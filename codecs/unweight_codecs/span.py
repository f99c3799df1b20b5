"""A span: the run of whole chunks that one thread codes at a time."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import Bytes


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a span decodes to, and sums over it: squares of the original and of the error.

    ``largest`` is the largest absolute error. All three are 0 where coding is exact.
    """

    words: Bytes
    square: float = 0.0
    error: float = 0.0
    largest: float = 0.0


@dataclass(slots=True)
class Span:
    """A run of chunks of a tensor: whole ones, except for the tensor's last one.

    ``words`` holds the span's bytes. Stages add and consume ``streams``: symbols and contexts are
    padded to whole groups of 128, planes and top values are not; the escape stream holds the
    exponents of escaped words. A fused kernel may leave a stream in ``packed`` form only, as raw
    segments hold it, and count the escapes of each chunk itself. ``coded`` holds the span's chunks
    one after the other, ``directory`` a row for each.
    """

    first_word: int
    count: int
    words: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    streams: dict[str, Bytes] = field(default_factory=dict)
    packed: dict[str, Bytes] = field(default_factory=dict)
    escape_counts: NDArray[np.uint64] | None = None
    prediction: NDArray[np.float32] | None = None
    checked: CheckResult | None = None
    coded: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    directory: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, "V1"))

    def copy_empty(self) -> "Span":
        """Return a span for the same words, to be filled by decoding ``coded``."""
        empty = buffers.empty(self.words.size)
        return Span(self.first_word, self.count, empty, coded=self.coded, directory=self.directory)

    def drop_streams(self) -> None:
        """Free everything but words and coded bytes."""
        self.streams.clear()
        self.packed.clear()
