"""Error-bound check: every chunk and tensor within a relative error, in the Frobenius norm."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unweight_codecs.bounded.fit import fit
from unweight_codecs.bounded.levels import MAX_STEP, MIN_STEP, squared_error
from unweight_codecs.codec import Mode, Stage, TensorView
from unweight_codecs.errors import IntegrityError
from unweight_codecs.model import TensorModel
from unweight_codecs.span import CheckResult, Span


@dataclass(frozen=True)
class ErrorBound(Stage):
    """Gives every chunk the largest step within the bound; where none is, it stays as it is."""

    name: ClassVar[str] = "error_bound"
    slot: ClassVar[str] = "bound"
    mode: ClassVar[Mode | None] = "bounded"

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Fit grid, steps and tables; drop low-rank factors that do not make the tensor smaller."""
        found, bounded = fit(tensor, model, epsilon), model.on_levels
        bounded.form, bounded.factors = found.form, found.factors
        bounded.steps = np.array([step.value for step in found.steps], np.float32)
        bounded.settings.step_sizes = np.array([step.size for step in found.steps], np.float32)
        regions = np.arange(tensor.chunks) // tensor.chunks_per_region
        model.tables["symbol"] = found.tables
        model.table_of_chunk["symbol"] = found.table_of_region[regions]
        model.coders["symbol"] = "rans"
        model.stream_bits["symbol"] = found.bits
        model.estimated_bits += found.bits

    def write(self, model: TensorModel) -> bytes:
        """Write an f32 step per chunk; with 0 all its words escape."""
        return model.on_levels.steps.astype("<f4").tobytes()

    def read(self, section: bytes, model: TensorModel) -> None:
        """Restore the steps."""
        if len(section) != 4 * model.chunks:
            raise IntegrityError("the bound section has a wrong size")
        steps = np.frombuffer(section, "<f4").astype(np.float32)
        inside = (steps >= MIN_STEP) & (steps <= MAX_STEP)
        if not np.all(inside | (steps == 0)):
            raise IntegrityError("the bound section has an impossible step")
        model.on_levels.steps = steps

    def check(
        self, original: Span, decoded: Span, model: TensorModel, epsilon: float
    ) -> CheckResult:
        """Raise IntegrityError unless every chunk is within the bound."""
        step = model.chunk_words * model.layout.word_bytes
        squares = errors = most = 0.0
        for at in range(0, original.words.size, step):
            square, error, largest = squared_error(
                original.words[at : at + step], decoded.words[at : at + step], model.spec.dtype
            )
            if not error <= epsilon**2 * square:
                raise IntegrityError(
                    f"words from {original.first_word + at // model.layout.word_bytes} on do not "
                    f"decode to within {epsilon:g} of what was encoded",
                    hint="this is a bug or faulty hardware: please report it",
                )
            squares, errors, most = squares + square, errors + error, max(most, largest)
        return CheckResult(decoded.words, squares, errors, most)
