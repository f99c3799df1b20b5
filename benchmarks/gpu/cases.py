"""Comparisons that are counted, and how much is compared."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError

DTYPES: Final = ("BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2", "I8", "U16", "I32", "I64")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is compared.

    Attributes:
        dtypes: Of the tensors that are decoded.
        shape: Of those tensors.
        chunk_log2: log2 of the words of their chunks.
        matrices: Shapes of palettes, with columns in multiples of 16.
        nbytes: Of the buffers for checksums and comparisons, a multiple of 16.
    """

    dtypes: tuple[str, ...]
    shape: tuple[int, int]
    chunk_log2: int
    matrices: tuple[tuple[int, int], ...]
    nbytes: int


# The last group of words of a tensor is not full, and its chunks are not as long as the others.
FULL: Final = Sizes(DTYPES, (1021, 1028), 16, ((1024, 4096), (4096, 1024), (333, 2064)), 64 << 20)


@dataclass(frozen=True, slots=True)
class Line:
    """A group of comparisons without a difference; ``stored`` tensors did not shrink."""

    name: str
    cases: int
    stored: int = 0

    def __str__(self) -> str:
        stored = f", {self.stored} stored" if self.stored else ""
        return f"{self.name}: {self.cases} cases{stored}, ok"


@dataclass(slots=True)
class Cases:
    """Counts comparisons of one group, and stops at the first difference."""

    name: str
    count: int = 0
    stored: int = 0

    def require(self, case: str, same: bool) -> None:
        """Count a case. Raises IntegrityError unless it was the same on both sides."""
        if not same:
            raise IntegrityError(f"{self.name}: {case}: the device differs from the processor")
        self.count += 1

    def equal(self, case: str, found: NDArray[Any], expected: NDArray[Any]) -> None:
        """Count a case of two arrays; raises IntegrityError unless every bit is the same."""
        same = found.shape == expected.shape and found.tobytes() == expected.tobytes()
        if not same and found.shape == expected.shape:
            first = int(np.argmax(_octets(found) != _octets(expected)))
            case = f"{case}, byte {first}"
        self.require(case, same)

    def line(self) -> Line:
        """Return what is printed."""
        return Line(self.name, self.count, self.stored)


def _octets(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
