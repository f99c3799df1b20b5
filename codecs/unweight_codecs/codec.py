"""The codec protocol: what a stage is, and the tensor that it is fitted to."""

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError, UsageError, quoted
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.layouts import WordLayout
from unweight_codecs.model import TensorModel
from unweight_codecs.span import CheckResult, Span
from unweight_codecs.tensor_spec import TensorSpec

SLOTS_IN_ORDER: Final = ("outlier", "grid", "tile_svd", "bound", "pack")
MAX_REGIONS: Final = 128

Mode = Literal["exact", "bounded"]
"""Whether words come back as they were, or within an error bound."""

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
        """Return ``{"name", "configuration"}`` as JSON-ready data; empty text is left out."""
        settings = asdict(self)  # type: ignore[call-overload]
        configuration = {key: value for key, value in settings.items() if value != ""}
        return {"name": self.name, "configuration": configuration}

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

    A stage overrides what it has a part in. ``fit`` decides that part of the model, once per
    tensor; ``write`` and ``read`` store it in the head of the payload; ``encode`` and ``decode``
    transform a span in place. The defaults decide nothing, store nothing and change nothing.

    Attributes:
        mode: The mode of coding that the stage belongs to; None for a stage that serves both. A
            pipeline has stages of one mode.
    """

    mode: ClassVar[Mode | None] = None

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Decide this stage's part of the model.

        ``epsilon`` is the relative error allowed, in the Frobenius norm; 0 in the exact mode.
        """

    def write(self, model: TensorModel) -> bytes:
        """Return this stage's section of the head; empty by default."""
        return b""

    def read(self, section: bytes, model: TensorModel) -> None:
        """Restore this stage's part of the model; raises IntegrityError for a damaged section.

        By default only an empty section is accepted.
        """
        if section:
            raise IntegrityError(f"the {self.slot} section is not empty")

    def prepare(self, span: Span, model: TensorModel) -> None:
        """Add to a span what both sides know without the payload, before encode or decode."""

    def encode(self, span: Span, model: TensorModel) -> None:
        """Transform a span on the way to the file."""

    def decode(self, span: Span, model: TensorModel) -> None:
        """Undo ``encode``; raises IntegrityError for damaged input."""

    def check(
        self, original: Span, decoded: Span, model: TensorModel, epsilon: float
    ) -> CheckResult:
        """Compare what a span decodes to with its original; asked of the slot ``bound`` alone.

        Raises IntegrityError unless every chunk is within the relative error ``epsilon``.
        """
        raise UsageError(f"stage {self.label()} cannot check an error bound")
