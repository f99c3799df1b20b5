"""Good payloads of every kind, to be made hostile, and the check that a payload is refused."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.support import bounded
from tests.support.memory import at_most_more
from tests.support.payloads import Parts, decoded, encoded, head_length
from unweight_codecs.errors import IntegrityError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.tensor_spec import TensorSpec

OUTLIER, GRID, TILE_SVD, BOUND, PACK = range(5)  # sections of a head
ROWS, COLUMNS, CHUNK = 128, 64, 4096
SPEC = TensorSpec("t", "BF16", (ROWS, COLUMNS))
MEMORY = 64 << 20

Data = bytes | Callable[[bytes], bytes]  # of a section or a segment, or made of what was there
Segment = tuple[int, str | int, int, Data]  # stream, coder, table and data


@dataclass(frozen=True)
class Kind:
    """A pipeline, and the weights and the error bound with which it has what it is meant to.

    Attributes:
        pipeline: With chunks of 4096 words, of which the tensor takes two.
        weights: Returns the words of the tensor ``SPEC``.
        epsilon: The relative error allowed.
    """

    pipeline: Pipeline
    weights: Callable[[], Bytes]
    epsilon: float = 0.0

    def encoded(self) -> bytes:
        """Return the payload."""
        return encoded(self.pipeline, SPEC, self.weights(), self.epsilon)

    def parts(self) -> Parts:
        """Return the payload, taken apart."""
        return Parts.of(self.encoded(), self.pipeline, SPEC)


def _exact(classes: int) -> Pipeline:
    stages = (
        ExponentWindow(),
        HistogramGrid(mantissa_bits=1),
        ScaleClasses(classes),
        BitExact(),
        Pack(chunk_log2=12),
    )
    return pipeline_of("test", stages)


def _rows_of_many_scales() -> Bytes:
    rng = np.random.default_rng(0)
    scales = np.exp2(rng.integers(-8, 1, ROWS))[:, None]
    values = (rng.normal(0, 1, (ROWS, COLUMNS)) * scales).astype("<f4")
    return np.ascontiguousarray(values.view("<u2")[:, 1::2]).view(np.uint8).reshape(-1)


def _low_rank() -> Bytes:
    values = bounded.low_rank((ROWS, COLUMNS), 1, 0, 0.01)
    return bounded.with_specials(bounded.words_of(values, "BF16"), "BF16", 40)


PLAIN = Kind(_exact(classes=1), _rows_of_many_scales)
CONTEXTS = Kind(_exact(classes=8), _rows_of_many_scales)
LOW_BITS = Kind(bounded.pipeline(spacing="uniform"), _low_rank, 0.002)
TABLE = Kind(bounded.pipeline(spacing="lloyd"), _low_rank, 0.3)
FACTORS = Kind(bounded.pipeline(rank=1, tile=50), _low_rank, 0.01)
KINDS = {
    "plain": PLAIN,
    "contexts": CONTEXTS,
    "low_bits": LOW_BITS,
    "table": TABLE,
    "factors": FACTORS,
}


def refused(parts: Parts, spec: TensorSpec | None = None, match: str | None = None) -> None:
    """Check that a payload is refused with little memory, as that of ``spec`` where one is given.

    ``match`` is a pattern of the message.
    """
    sealed = parts.seal()
    with at_most_more(MEMORY), pytest.raises(IntegrityError, match=match):
        decoded(parts.pipeline, spec or parts.spec, sealed)


def refused_by_head(parts: Parts, shape: tuple[int, ...], match: str | None = None) -> None:
    """Check that a head is refused for a BF16 tensor of ``shape``, which may be a huge one."""
    sealed = parts.seal()
    head, spec = sealed[: head_length(sealed)], TensorSpec("t", "BF16", shape)
    with at_most_more(MEMORY), pytest.raises(IntegrityError, match=match):
        parts.pipeline.read_head(head, spec, len(sealed))


def refused_section(kind: Kind, section: int, data: Data) -> None:
    """Check that a payload is refused for the section of a stage."""
    parts = kind.parts()
    parts.sections[section] = made_of(parts.sections[section], data)
    refused(parts)


def refused_segment(kind: Kind, segment: Segment) -> None:
    """Check that a payload is refused for a segment, in either chunk."""
    stream, coder, table, data = segment
    for chunk in range(2):
        parts = kind.parts()
        parts.change(chunk, stream, coder, table, made_of(parts.segments[chunk][stream], data))
        refused(parts)


def made_of(before: bytes, data: Data) -> bytes:
    """Return what comes in place of ``before``."""
    return data if isinstance(data, bytes) else data(before)
