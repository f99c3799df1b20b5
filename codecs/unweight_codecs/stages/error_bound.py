"""Error-bound check: every chunk and tensor within a relative error, in the Frobenius norm."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unweight_codecs.codec import Block, Checked, Model, Stage, TensorView
from unweight_codecs.errors import IntegrityError
from unweight_codecs.quantise.fit import Fitted, fit
from unweight_codecs.quantise.levels import LARGEST_STEP, SMALLEST_STEP, squared_error


@dataclass(frozen=True)
class ErrorBound(Stage):
    """Gives every chunk the largest step within the bound; where none is, it stays as it is."""

    name: ClassVar[str] = "error_bound"
    slot: ClassVar[str] = "bound"

    def fit(self, tensor: TensorView, model: Model) -> None:
        """Fit steps and tables; drop low-rank factors that do not make the tensor smaller."""
        found = fit(tensor, model, model.spacing, model.most_tables)
        factors = model.low_rank
        if factors is not None:
            size = 8 * (factors.left.size + factors.right.size + 2 * factors.weights.size)
            model.low_rank = None
            plain = fit(tensor, model, model.spacing, model.most_tables)
            if found.bits + size < plain.bits:
                model.low_rank = factors
                model.estimated_bits += size
            else:
                found = plain
        _install(found, tensor, model)

    def write(self, model: Model) -> bytes:
        """Write an f32 step per chunk; 0 keeps all its words."""
        if model.steps is None:
            raise IntegrityError("a tensor on a grid without steps")
        return model.steps.astype("<f4").tobytes()

    def read(self, section: bytes, model: Model) -> None:
        """Restore the steps."""
        if len(section) != 4 * model.chunks:
            raise IntegrityError("the bound section has a wrong size")
        model.steps = np.frombuffer(section, "<f4").astype(np.float32)
        inside = (model.steps >= SMALLEST_STEP) & (model.steps <= LARGEST_STEP)
        if not np.all(inside | (model.steps == 0)):
            raise IntegrityError("the bound section has an impossible step")

    def encode(self, block: Block, model: Model) -> None:
        """Leave the block alone: the check needs the packed chunks."""

    def decode(self, block: Block, model: Model) -> None:
        """Leave the block alone."""

    def check(self, original: Block, decoded: Block, model: Model) -> Checked:
        """Raise IntegrityError unless every chunk is within the bound."""
        step = model.chunk_words * model.layout.word_bytes
        squares = errors = most = 0.0
        for at in range(0, original.words.size, step):
            square, error, largest = squared_error(
                original.words[at : at + step], decoded.words[at : at + step], model.spec.dtype
            )
            if not error <= model.epsilon**2 * square:
                raise IntegrityError(
                    f"words from {original.first_word + at // model.layout.word_bytes} on do not "
                    f"decode to within {model.epsilon:g} of what was encoded",
                    hint="this is a bug or faulty hardware: please report it",
                )
            squares, errors, most = squares + square, errors + error, max(most, largest)
        return Checked(decoded.words, squares, errors, most)


def _install(found: Fitted, tensor: TensorView, model: Model) -> None:
    model.levels = found.form
    model.steps = np.array([step.value for step in found.steps], np.float32)
    model.step_sizes = np.array([step.size for step in found.steps], np.float32)
    model.tables["symbol"] = found.tables
    regions = np.arange(tensor.chunks) // tensor.chunks_per_region
    model.table_of_chunk["symbol"] = found.table_of_region[regions]
    model.coders["symbol"] = "rans"
    model.stream_bits["symbol"] = found.bits
    model.estimated_bits += found.bits
