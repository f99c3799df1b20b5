"""What a model predicts for a text, kept on disk, so that many others can be compared with it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unweight.evaluation.measure import estimates
from unweight.evaluation.measure.estimates import Estimate
from unweight.evaluation.measure.perplexity import (
    TITLE,
    PerplexityComparison,
    check_fit,
    compare_with,
    losses_of,
)
from unweight.evaluation.model.checkpoint import MORE_ROOM
from unweight.evaluation.model.language_model import LanguageModel
from unweight.evaluation.model.token_windows import TokenWindows
from unweight.operations.progress import Progress
from unweight_codecs.errors import Parameter, Phrase, QualityGateError, ResourceError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Reference:
    """Log-probabilities of all tokens at every scored position, a file per window.

    They are float32: halves would put a floor of about 1e-5 under the divergences.
    """

    folder: Path
    windows: TokenWindows
    perplexity: Estimate

    def compare(self, candidate: LanguageModel, progress: Progress) -> PerplexityComparison:
        """Evaluate a model, with the vocabulary of the reference, on the same windows."""
        import torch

        def predictions(number: int) -> "torch.Tensor":
            return torch.from_numpy(np.load(_file(self.folder, number))).to(candidate.device)

        return compare_with(predictions, candidate, self.windows, progress)


@contextmanager
def open_reference(
    model: LanguageModel, windows: TokenWindows, progress: Progress
) -> Iterator[Reference]:
    """Yield what ``model`` predicts; its files are gone when the block ends.

    Raises QualityGateError when the model gives no finite logits, ResourceError for want of room.
    """
    check_fit(model, windows)
    losses = np.empty(windows.targets.shape)
    with tempfile.TemporaryDirectory(prefix="unweight-") as name:
        progress.begin(TITLE, windows.nbytes)
        for number, ids in enumerate(windows.ids):
            predicted = model.log_probabilities(ids, windows.first)
            losses[number] = losses_of(predicted, windows, number)
            _save(Path(name), number, predicted)
            progress.advance(windows.step(number))
        progress.finish()
        found = estimates.perplexity(losses)
        if not found.is_finite:
            raise QualityGateError(
                f"{model.name}: the perplexity is {found.value}: the model gives no finite logits"
            )
        yield Reference(Path(name), windows, found)


def _save(folder: Path, number: int, predicted: "torch.Tensor") -> None:
    try:
        np.save(_file(folder, number), predicted.cpu().numpy())
    except OSError as error:
        raise ResourceError(
            f"{folder}: the predictions of a window, {predicted.nbytes} bytes, cannot be written",
            hint=Phrase(MORE_ROOM, "; fewer ", Parameter("windows"), " need less"),
        ) from error


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number}.npy"
