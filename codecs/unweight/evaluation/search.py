"""The largest error bound that leaves the perplexity alone: ``compress --epsilon auto``."""

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from unweight.evaluation.extra import require_extra
from unweight.evaluation.measure import estimates, gate
from unweight.evaluation.measure.estimates import Estimate, Values
from unweight.evaluation.measure.perplexity import measure
from unweight.evaluation.model.checkpoint import find_definition, open_checkpoint
from unweight.evaluation.model.language_model import BEST_DEVICE, choose_device, limit_threads, load
from unweight.evaluation.model.token_windows import DEFAULT_CONTEXT, TokenWindows, cut
from unweight.evaluation.model.tokenizer import load_tokenizer
from unweight.evaluation.text import Text
from unweight.operations.progress import Progress
from unweight_codecs.errors import Parameter, Phrase, QualityGateError

FIRST: Final = 0.005  # about the error of 8 bits
MAX_ATTEMPTS: Final = 6
_MIN_EPSILON: Final = 1e-5
_MAX_EPSILON: Final = 0.5
_STRETCH: Final = 3.0  # an attempt is at most this many times the last one, or one part of it
_AIM: Final = 0.8  # of the limit: what the next attempt is meant to reach
_NEAR: Final = 1.12  # bounds this close differ by a sixth of a bit: not worth another evaluation

# Compresses the checkpoint with an error bound to a target.
Compress = Callable[[float, Path], None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One error bound, and what it does to the perplexity."""

    epsilon: float
    perplexity: Estimate
    difference: Estimate


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to search on; ``model`` is a directory with config.json and tokenizer, if needed."""

    path: Path
    max_delta: float
    text: Text
    model: Path | None = None
    context: int = DEFAULT_CONTEXT
    windows: int = 0
    device: str = BEST_DEVICE
    threads: int = 0


@dataclass(frozen=True, slots=True)
class SearchReport:
    """What was tried, in this order, and the largest bound that passed."""

    max_delta: float
    best: Attempt
    attempts: tuple[Attempt, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the search as JSON-ready data."""
        return {
            "max_delta": self.max_delta,
            "epsilon": self.best.epsilon,
            "attempts": [
                {
                    "epsilon": attempt.epsilon,
                    "perplexity": attempt.perplexity.to_dict(),
                    "difference": attempt.difference.to_dict(),
                }
                for attempt in self.attempts
            ],
        }


@dataclass(slots=True)
class EpsilonSearch:
    """Narrows down the largest bound whose change of perplexity is within the limit.

    The change grows with the square of the bound, apart from noise, so each attempt is set where
    that rule expects ``_AIM`` of the limit, between the largest bound that passed and the
    smallest that failed. A bound passes when the gate is open for it.

    Attributes:
        max_delta: The largest change of perplexity, up or down.
        vocabulary: Number of tokens that the model tells apart.
        original: Perplexity of the original.
        attempts: What was tried, in this order.
    """

    max_delta: float
    vocabulary: int
    original: Estimate
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def best(self) -> Attempt | None:
        """The largest bound within the limit so far."""
        passed = [attempt for attempt in self.attempts if self._passes(attempt)]
        return max(passed, key=lambda attempt: attempt.epsilon, default=None)

    def next(self) -> float | None:
        """Return the next bound to try; None when another attempt would gain little."""
        if not self.attempts:
            return FIRST
        if len(self.attempts) >= MAX_ATTEMPTS:
            return None
        last = self.attempts[-1]
        change = abs(last.difference.value)
        wanted = self.max_delta * _AIM
        ratio = math.sqrt(wanted / change) if change > 0 else _STRETCH
        if not math.isfinite(ratio):
            ratio = 1 / _STRETCH
        epsilon = last.epsilon * min(max(ratio, 1 / _STRETCH), _STRETCH)
        low = self.best.epsilon if self.best else 0.0
        failed = [a.epsilon for a in self.attempts if not self._passes(a)]
        high = min(failed, default=_MAX_EPSILON)
        if not low * _NEAR < epsilon < high:
            if low and not failed:
                return None
            epsilon = math.sqrt(low * high) if low else high / 2
        near = low and high < low * _NEAR
        return None if near or not _MIN_EPSILON <= epsilon <= _MAX_EPSILON else epsilon

    def failure(self, attempt: Attempt) -> str:
        """Return why the gate is closed for an attempt, in words; "" when it is open."""
        return gate.failure(
            attempt.perplexity, self.vocabulary, self.original, attempt.difference, self.max_delta
        )

    def _passes(self, attempt: Attempt) -> bool:
        return not self.failure(attempt)


def search(
    request: SearchRequest,
    compress: Compress,
    progress: Progress,
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
) -> SearchReport:
    """Compress and evaluate with a few error bounds; returns all attempts.

    Every attempt is the real thing: a compressed checkpoint, restored and loaded. Raises
    QualityGateError when the original itself predicts nothing of the text, before anything is
    compressed, and, saying what was reached, when no attempt is within the limit.
    """
    find_definition(request.path, request.model, None)
    require_extra()
    choose_device(request.device)
    limit_threads(request.threads)
    windows, original, vocabulary = _original(request, progress)
    found = EpsilonSearch(request.max_delta, vocabulary, estimates.perplexity(original))
    if reason := gate.unsound_original(found.original, vocabulary):
        raise QualityGateError(f"{request.path}: {reason}")
    while (epsilon := found.next()) is not None:
        with tempfile.TemporaryDirectory(prefix="unweight-") as folder:
            target = Path(folder, "compressed")
            compress(epsilon, target)
            losses = _losses(target, request, windows, progress)
        attempt = Attempt(
            epsilon, estimates.perplexity(losses), estimates.difference(original, losses)
        )
        found.attempts.append(attempt)
        on_attempt(attempt)
    if found.best is None:
        closest = min(found.attempts, key=_distance)
        raise QualityGateError(
            f"{request.path}: none of {len(found.attempts)} error bounds passes: with the "
            f"closest, {closest.epsilon:.3g}, {found.failure(closest)}",
            hint=Phrase(
                "allow more with ",
                Parameter("max_ppl_delta"),
                ", or leave out ",
                Parameter("epsilon"),
                " to change nothing",
            ),
        )
    return SearchReport(found.max_delta, found.best, tuple(found.attempts))


def _distance(attempt: Attempt) -> float:
    """Return how far an attempt is from the original; NaN, which has no order, is farthest."""
    distance = abs(attempt.difference.value)
    return math.inf if math.isnan(distance) else distance


def _original(request: SearchRequest, progress: Progress) -> tuple[TokenWindows, Values, int]:
    """Return the windows of the text, the original's losses on them, and its vocabulary."""
    with open_checkpoint(
        request.path, request.model, threads=request.threads, progress=progress
    ) as checkpoint:
        tokenizer = load_tokenizer(checkpoint.tokenizer)
        windows = cut(request.text, tokenizer, request.context, request.windows)
        model = load(checkpoint, request.device)
    return windows, measure(model, windows, progress).reshape(-1), model.vocabulary


def _losses(
    path: Path, request: SearchRequest, windows: TokenWindows, progress: Progress
) -> Values:
    with open_checkpoint(
        path, request.model, request.path, threads=request.threads, progress=progress
    ) as checkpoint:
        model = load(checkpoint, request.device)
    return measure(model, windows, progress).reshape(-1)
