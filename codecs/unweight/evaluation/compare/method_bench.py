"""The rows of a comparison: a model's weights made smaller in one way, and what that does to it."""

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from unweight.evaluation.compare.comparison_report import BOUNDED, LOSSLESS, ORIGINAL, ComparisonRow
from unweight.evaluation.compare.methods import Method
from unweight.evaluation.measure.estimates import Estimate
from unweight.evaluation.measure.perplexity_report import WindowsReport
from unweight.evaluation.measure.reference_predictions import Reference
from unweight.evaluation.model.checkpoint import temporary_files
from unweight.evaluation.model.language_model import LanguageModel, overwrite
from unweight.evaluation.model.matrices import Inventory, Matrix, take_inventory
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import Progress
from unweight_codecs.bounded.float_words import Values

if TYPE_CHECKING:
    import torch

_PART: Final = 1 << 20  # weights whose squares are in memory at a time
_NO_CHANGE: Final = Estimate(0.0, 0.0)

# From the number of a matrix, the matrix and its weights to other weights, and their bytes.
_Change = Callable[[int, Matrix, Values], tuple[Values, int]]


@dataclass(slots=True)
class NumberedRows:
    """Progress whose titles say which row of how many it is, and what is done there."""

    progress: Progress
    rows: int
    number: int = 0
    name: str = ""

    def row(self, name: str) -> None:
        """Go on to the next row."""
        self.number, self.name = self.number + 1, name

    def begin(self, title: str, total: int) -> None:
        """Start a task of the current row."""
        self.progress.begin(f"{self.number}/{self.rows} {self.name}: {title}", total)

    def advance(self, nbytes: int) -> None:
        """Pass on."""
        self.progress.advance(nbytes)

    def finish(self) -> None:
        """Pass on."""
        self.progress.finish()


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that can be judged with other weights; ``parameters`` go by names of matrices."""

    model: LanguageModel
    parameters: "dict[str, torch.Tensor]"
    reference: Reference
    evaluated: WindowsReport


@dataclass(frozen=True, slots=True)
class Bench:
    """Where rows are measured.

    Attributes:
        inventory: What is in the original files.
        files: Those files, which are plain safetensors.
        folder: A temporary directory.
        threads: Threads to compress with; 0 for all.
        subject: The model; None where no perplexity is measured.
        progress: Told of every step.
    """

    inventory: Inventory
    files: tuple[Path, ...]
    folder: Path
    threads: int
    subject: Subject | None
    progress: NumberedRows

    def lossless(self, preset: str) -> ComparisonRow:
        """Compress bit-exactly, which is checked while it is done: there is nothing to measure."""
        nbytes = self._compress(CompressOptions(preset=preset, threads=self.threads))
        return self._row(preset, LOSSLESS, nbytes, 0.0, is_file=True, exact=True)

    def bounded(self, epsilon: float) -> ComparisonRow:
        """Compress with an error bound, and measure what the files restore to."""
        options = CompressOptions(epsilon=epsilon, threads=self.threads)
        nbytes = self._compress(options, restore=True)
        restored = take_inventory(self._restored(number) for number in range(len(self.files)))
        _, error = self._change(lambda number, *_: (restored.matrices[number].read(), 0))
        return self._row(f"bounded {epsilon:g}", BOUNDED, nbytes, error, is_file=True)

    def method(self, method: Method) -> ComparisonRow:
        """Change the matrices as another method does."""

        def change(number: int, matrix: Matrix, weights: Values) -> tuple[Values, int]:
            if weights.shape[1] % method.block:
                return weights, matrix.entry.nbytes
            return method.change(weights, matrix.word_bytes)

        nbytes, error = self._change(change)
        return self._row(method.name, method.kind, self.inventory.other_bytes + nbytes, error)

    def original(self) -> ComparisonRow:
        """Return the row that the others are compared with."""
        nbytes = self.inventory.file_bytes
        return self._row("original", ORIGINAL, nbytes, 0.0, is_file=True, exact=True)

    def _compress(self, options: CompressOptions, *, restore: bool = False) -> int:
        """Compress all files; returns their sizes together."""
        nbytes = 0
        for number, file in enumerate(self.files):
            with tempfile.TemporaryDirectory(dir=self.folder) as name:
                target, restored = Path(name, "compressed"), self._restored(number)
                with temporary_files():
                    nbytes += compress(file, target, options, self.progress).target_bytes
                    if restore:
                        decompress(
                            target,
                            restored,
                            threads=self.threads,
                            force=True,
                            progress=self.progress,
                        )
        return nbytes

    def _restored(self, number: int) -> Path:
        return self.folder / f"{number}.safetensors"

    def _change(self, change: _Change) -> tuple[int, float]:
        """Change all matrices, in the model as well; returns their bytes and relative error."""
        nbytes, wrong, square = 0, 0.0, 0.0
        self.progress.begin("weights", self.inventory.matrix_bytes)
        for number, matrix in enumerate(self.inventory.matrices):
            weights = matrix.read()
            with np.errstate(all="ignore"):  # weights near the ends of the range of floats
                changed, size = change(number, matrix, weights)
            nbytes += size
            wrong += _squares(changed, weights)
            square += _squares(weights)
            if self.subject:
                overwrite(self.subject.parameters[matrix.name], changed.reshape(matrix.shape))
            self.progress.advance(matrix.entry.nbytes)
        self.progress.finish()
        return nbytes, math.sqrt(wrong / square) if square else 0.0

    def _row(
        self,
        name: str,
        kind: str,
        nbytes: int,
        error: float,
        *,
        is_file: bool = False,
        exact: bool = False,
    ) -> ComparisonRow:
        row = ComparisonRow(name, kind, nbytes, is_file, 8 * nbytes / self.inventory.weights, error)
        if self.subject is None:
            return row
        if exact:
            found = self.subject.reference.perplexity
            return replace(row, perplexity=found, difference=_NO_CHANGE, kl_divergence=_NO_CHANGE)
        compared = self.subject.reference.compare(self.subject.model, self.progress)
        return replace(
            row,
            perplexity=compared.candidate,
            difference=compared.difference,
            kl_divergence=compared.kl_divergence,
        )


def _squares(values: Values, less: Values | None = None) -> float:
    """Return the sum of squares of ``values``, or of how far they are from others."""
    flat = values.reshape(-1)
    other = None if less is None else less.reshape(-1)
    total = 0.0
    for first in range(0, flat.size, _PART):
        part = flat[first : first + _PART].astype(np.float64)
        if other is not None:
            part -= other[first : first + _PART]
        total += float(part @ part)
    return total
