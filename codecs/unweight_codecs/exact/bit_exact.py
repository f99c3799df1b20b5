"""Error-bound check. Lossless: what was just encoded is decoded, and every bit is compared."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unweight_codecs.codec import Stage, TensorView
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_codecs.model import TensorModel
from unweight_codecs.span import CheckResult, Span


@dataclass(frozen=True)
class BitExact(Stage):
    """Compares the decoded span with the original.

    Attributes:
        epsilon: Largest relative error allowed; this version codes exactly, so only 0.
    """

    epsilon: float = 0

    name: ClassVar[str] = "bound"
    slot: ClassVar[str] = "bound"

    def __post_init__(self) -> None:
        if self.epsilon != 0:
            raise UsageError(
                f"stage {self.label()}: epsilon must be 0, not {self.epsilon!r}",
                hint="--epsilon allows an error, by stages of its own",
            )

    def fit(self, tensor: TensorView, model: TensorModel) -> None:
        """Nothing to decide."""

    def write(self, model: TensorModel) -> bytes:
        """Write an empty section: exactness needs no parameter."""
        return b""

    def read(self, section: bytes, model: TensorModel) -> None:
        """Accept only an empty section."""
        if section:
            raise IntegrityError("the bound section is not empty")

    def encode(self, span: Span, model: TensorModel) -> None:
        """Leave the span alone: the check needs the packed chunks."""

    def decode(self, span: Span, model: TensorModel) -> None:
        """Leave the span alone."""

    def check(self, original: Span, decoded: Span, model: TensorModel) -> CheckResult:
        """Raise IntegrityError unless both spans hold the same bytes."""
        if not np.array_equal(original.words, decoded.words):
            raise IntegrityError(
                f"words {original.first_word} to {original.first_word + original.count} "
                "do not decode to what was encoded",
                hint="this is a bug or faulty hardware: please report it",
            )
        return CheckResult(decoded.words)
