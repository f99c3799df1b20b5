"""What the stages decide for one tensor, and a decoder rebuilds from the head of its payload."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes, FloatSplit, Frequencies, LevelForm, LowRank
from unweight_codecs.layouts import WordLayout
from unweight_codecs.tensor_spec import TensorSpec

BUILT_IN_CODERS: Final = ("raw", "constant", "rans", "zstd")  # by their numbers in a directory
SCALE_UNITS: Final = 32  # row and column scales of a ContextMap count 1/32 octave
_ZERO: Final = LevelForm(low_bits=0, limit=1)  # the level 0 alone, until levels are chosen


@dataclass(slots=True)
class FitSettings:
    """What the stages propose to the error bound, which decides. A decoder has none of it.

    Attributes:
        tau: Words beyond so many standard deviations of their row are outliers, and escape.
        row_deviations: Standard deviation of each row; None where ``tau`` makes no word an outlier.
        spacing: How levels may be spaced: ``"uniform"``, one of ``quantise.tables.TABLES``, or
            ``"auto"``.
        tables: Most frequency tables of the symbols.
        step_sizes: How far apart the levels of each chunk are, which may differ a little from
            what one is worth; None where it does not.
    """

    tau: float = np.inf
    row_deviations: NDArray[np.float32] | None = None
    spacing: str = "uniform"
    tables: int = 1
    step_sizes: NDArray[np.float32] | None = None


@dataclass(slots=True)
class BoundedModel:
    """The part of a model that puts words on levels. A decoder rebuilds all but the ``settings``.

    Attributes:
        form: The grid of levels, the same in all chunks.
        steps: What one level is worth, float32, shape (chunks,); 0 where all words escape.
        factors: What is added to the levels; None where nothing is.
        settings: For the encoder.
    """

    form: LevelForm = _ZERO
    steps: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    factors: LowRank | None = None
    settings: FitSettings = field(default_factory=FitSettings)


@dataclass(frozen=True, slots=True)
class ContextMap:
    """A coding context per weight: ``context_of_sum[row_scale + column_scale]``.

    ``tables[k]`` is the frequency table of context k. Scales are uint8, ``context_of_sum`` has 511
    entries, each below ``len(tables)``.
    """

    row_scales: Bytes
    column_scales: Bytes
    context_of_sum: Bytes
    tables: Frequencies


@dataclass(slots=True)
class TensorModel:
    """What the stages decided for one tensor. A decoder rebuilds it from the payload's head.

    ``tables`` and ``context_map`` are needed by both sides; the tables of a ``contextual`` stream
    are chosen by what predicts it, one per context. ``table_of_chunk`` and ``coders`` guide the
    encoder only: a decoder finds the choice for every chunk in the directory, where a coder is a
    number, its position in ``coder_names``. ``stream_bits``
    are the parts of ``estimated_bits`` that coded streams take, with tables. ``sections``
    are the stages' parts of the head, written once the model is complete.

    ``bounded`` is the part of a tensor whose words may change within an error bound.
    """

    spec: TensorSpec
    layout: WordLayout
    chunk_words: int
    base: int = 0
    window: int = 0
    top_bits: int = 0
    tables: dict[str, Frequencies] = field(default_factory=dict)
    contextual: set[str] = field(default_factory=set)
    table_of_chunk: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    coders: dict[str, str] = field(default_factory=dict)
    coder_names: tuple[str, ...] = BUILT_IN_CODERS
    context_map: ContextMap | None = None
    stream_bits: dict[str, int] = field(default_factory=dict)
    estimated_bits: int = 0
    sections: tuple[bytes, ...] = ()
    bounded: BoundedModel | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the words are coded without error."""
        return self.bounded is None

    @property
    def on_levels(self) -> BoundedModel:
        """The part that puts words on levels; raises IntegrityError where there is none."""
        if self.bounded is None:
            raise IntegrityError("a tensor without an error bound cannot lie on a grid of levels")
        return self.bounded

    @property
    def escape_limit(self) -> int:
        """Symbols from here up are escapes."""
        return self.bounded.form.limit if self.bounded else self.split.escape_limit

    @property
    def escape_bytes(self) -> int:
        """Bytes of one escape: an exponent, or the whole word where the rest is on a grid."""
        return self.layout.word_bytes if self.bounded else self.split.escape_bytes

    @property
    def split(self) -> FloatSplit:
        """The split of float words into symbols and raw bits."""
        layout = self.layout
        return FloatSplit(
            layout.word_bytes,
            layout.exponent_bits,
            layout.mantissa_bits,
            self.top_bits,
            self.base,
            self.window,
        )

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.layout.words // self.chunk_words)

    def streams(self) -> dict[str, int]:
        """Return the streams of a chunk in payload order, with the bits of one value of each."""
        if not self.layout.is_float:
            return self.layout.plain_streams()
        if self.bounded:
            low_bits = self.bounded.form.low_bits
            low = {"low": low_bits} if low_bits else {}
            return {"symbol": 8} | low | {"escape": 8 * self.layout.word_bytes}
        split = self.split
        streams = {"symbol": 8}
        streams |= {f"plane{k}": 8 for k in range(split.raw_bits // 8)}
        if split.raw_bits % 8:
            streams["top"] = split.raw_bits % 8
        return streams | {"escape": 8 * split.escape_bytes}


def max_streams(layout: WordLayout) -> int:
    """Return the most streams that words of a layout can have, whatever the model."""
    if not layout.is_float:
        return len(layout.plain_streams())
    planes = -(-(1 + layout.mantissa_bits) // 8)  # the last of them may be the stream ``top``
    return planes + len(("symbol", "escape"))
