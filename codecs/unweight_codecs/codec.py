"""The codec protocol: what a stage is, and the data that stages hand to each other."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded import Bounded
from unweight_codecs.errors import IntegrityError, UsageError, quoted
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.base import ALPHABET, Bytes, FloatFormat, Frequencies
from unweight_codecs.layouts import WordLayout
from unweight_codecs.tensor_spec import TensorSpec

SLOTS_IN_ORDER: Final = ("outlier", "grid", "tile_svd", "bound", "pack")
MAX_REGIONS: Final = 128
SCALE_UNITS: Final = 32  # row and column scales of a ClassMap count 1/32 octave

Reader = Callable[[int, int], Bytes]
"""Reads ``count`` words of the tensor from word ``first``: (first, count) → their bytes."""


@dataclass(slots=True)
class TensorView:
    """A tensor to be modelled: its layout, its bytes on demand, and its survey.

    ``histograms`` has one row per region, a run of consecutive chunks: for floats the counts of the
    exponent and top mantissa bits, shape (regions, 2**histogram_bits); for other words the
    counts of every stream's values, shape (regions, 256 * streams), followed by those of each
    predicted stream per context. With ``sampled`` they stand for all
    words but were counted on a part of them: a value that was not seen may still occur.
    """

    spec: TensorSpec
    layout: WordLayout
    chunk_words: int
    chunks_per_region: int
    histograms: NDArray[np.int64]
    read: Reader
    sampled: bool = False

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.layout.words // self.chunk_words)


@dataclass(slots=True)
class Model:
    """What the stages decided for one tensor. A decoder rebuilds it from the payload's head.

    ``tables`` and ``classes`` are needed by both sides; the tables of a ``contextual`` stream are
    chosen by what predicts it, one per context. ``table_of_chunk`` and ``coders`` guide the
    encoder only: a decoder finds the choice for every chunk in the directory. ``stream_bits``
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
    classes: "ClassMap | None" = None
    stream_bits: dict[str, int] = field(default_factory=dict)
    estimated_bits: int = 0
    sections: tuple[bytes, ...] = ()
    bounded: Bounded | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the words are coded without error."""
        return self.bounded is None

    @property
    def on_levels(self) -> Bounded:
        """The part that puts words on levels; raises IntegrityError where there is none."""
        if self.bounded is None:
            raise IntegrityError("a tensor without an error bound cannot lie on a grid of levels")
        return self.bounded

    @property
    def escape_limit(self) -> int:
        """Symbols from here up are escapes."""
        return self.bounded.form.limit if self.bounded else self.form.escape_limit

    @property
    def escape_bytes(self) -> int:
        """Bytes of one escape: an exponent, or the whole word where the rest is on a grid."""
        return self.layout.word_bytes if self.bounded else self.form.escape_bytes

    @property
    def form(self) -> FloatFormat:
        """The split of float words into symbols and raw bits."""
        layout = self.layout
        return FloatFormat(
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
        form = self.form
        streams = {"symbol": 8}
        streams |= {f"plane{k}": 8 for k in range(form.raw_bits // 8)}
        if form.raw_bits % 8:
            streams["top"] = form.raw_bits % 8
        return streams | {"escape": 8 * form.escape_bytes}


def most_streams(layout: WordLayout) -> int:
    """Return the most streams that words of a layout can have, whatever the model."""
    if not layout.is_float:
        return len(layout.plain_streams())
    planes = -(-(1 + layout.mantissa_bits) // 8)  # the last of them may be the stream ``top``
    return planes + len(("symbol", "escape"))


@dataclass(frozen=True, slots=True)
class ClassMap:
    """A coding context per weight: ``class_of_sum[row_scale + column_scale]``.

    ``tables[k]`` is the frequency table of class k. Scales are uint8, ``class_of_sum`` has 511
    entries, each below ``len(tables)``.
    """

    row_scales: Bytes
    column_scales: Bytes
    class_of_sum: Bytes
    tables: Frequencies


@dataclass(frozen=True, slots=True)
class Checked:
    """What a block decodes to, and sums over it: squares of the original and of the error.

    ``largest`` is the largest absolute error. All three are 0 where coding is exact.
    """

    words: Bytes
    square: float = 0.0
    error: float = 0.0
    largest: float = 0.0


@dataclass(slots=True)
class Block:
    """A span of a tensor: whole chunks, except for the tensor's last one.

    ``words`` holds the span's bytes. Stages add and consume ``streams``: symbols and classes are
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
    checked: Checked | None = None
    coded: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    directory: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, "V1"))

    def copy_empty(self) -> "Block":
        """Return a block for the same words, to be filled by decoding ``coded``."""
        empty = buffers.empty(self.words.size)
        return Block(self.first_word, self.count, empty, coded=self.coded, directory=self.directory)

    def drop_streams(self) -> None:
        """Free everything but words and coded bytes."""
        self.streams.clear()
        self.packed.clear()


class Codec(ABC):
    """A named, configurable codec. Subclasses are frozen dataclasses of their configuration."""

    name: ClassVar[str]
    slot: ClassVar[str]

    @classmethod
    def label(cls) -> str:
        """Return the slot, which is what settings name, and the codec in it if it has another name.

        ``"grid"``, ``"grid (level_grid)"``.
        """
        return cls.slot if cls.name == cls.slot else f"{cls.slot} ({cls.name})"

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"name", "configuration"}`` as JSON-ready data."""
        return {"name": self.name, "configuration": asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, configuration: Mapping[str, Any]) -> Self:
        """Build the codec from its configuration; raises UsageError for unknown keys or values."""
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        for key in configuration:
            if key not in known:
                raise UsageError(
                    f"stage {cls.label()}: unknown setting {quoted(key)}",
                    hint=f"settings: {', '.join(sorted(known)) or 'none'}",
                )
        return cls(**configuration)


def check_setting(stage: Codec, key: str, value: object, low: int, high: int) -> None:
    """Raise UsageError unless a setting of ``stage`` is an integer from ``low`` to ``high``."""
    if type(value) is not int or not low <= value <= high:
        raise UsageError(
            f"stage {stage.label()}: {key} must be {low} to {high}, not {quoted(value)}"
        )


class Stage(Codec):
    """One of the five stages of a pipeline.

    ``fit`` decides the stage's part of the model once per tensor; ``write`` and ``read`` store
    that part in the payload's head; ``encode`` and ``decode`` transform a block in place.
    """

    @abstractmethod
    def fit(self, tensor: TensorView, model: Model) -> None:
        """Decide this stage's part of the model."""

    @abstractmethod
    def write(self, model: Model) -> bytes:
        """Return this stage's section of the payload's head."""

    @abstractmethod
    def read(self, section: bytes, model: Model) -> None:
        """Restore this stage's part of the model; raises IntegrityError for a damaged section."""

    def prepare(self, block: Block, model: Model) -> None:
        """Add to a block what both sides know without the payload, before encode or decode."""

    @abstractmethod
    def encode(self, block: Block, model: Model) -> None:
        """Transform a block on the way to the file."""

    @abstractmethod
    def decode(self, block: Block, model: Model) -> None:
        """Undo ``encode``; raises IntegrityError for damaged input."""


__all__ = [
    "ALPHABET",
    "SLOTS_IN_ORDER",
    "Block",
    "Bounded",
    "Checked",
    "ClassMap",
    "Codec",
    "Model",
    "Stage",
    "TensorView",
    "most_streams",
]
