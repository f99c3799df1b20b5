"""Bound check without loss: what was just encoded is decoded again, and every bit is compared."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unweight_codecs.codec import Mode, Stage
from unweight_codecs.errors import IntegrityError
from unweight_codecs.model import TensorModel
from unweight_codecs.span import CheckResult, Span


@dataclass(frozen=True)
class BitExact(Stage):
    """Compares every bit of the decoded span with the original."""

    name: ClassVar[str] = "bit_exact"
    slot: ClassVar[str] = "bound"
    mode: ClassVar[Mode | None] = "exact"

    def check(
        self, original: Span, decoded: Span, model: TensorModel, epsilon: float
    ) -> CheckResult:
        """Raise IntegrityError unless both spans hold the same bytes."""
        if not np.array_equal(original.words, decoded.words):
            raise IntegrityError(
                f"words {original.first_word} to {original.first_word + original.count} "
                "do not decode to what was encoded",
                hint="this is a bug or faulty hardware: please report it",
            )
        return CheckResult(decoded.words)
