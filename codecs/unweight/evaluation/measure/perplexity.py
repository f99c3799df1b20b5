"""Perplexity of a model, and two models compared on the same tokens, window by window."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unweight.evaluation.measure import estimates
from unweight.evaluation.measure.estimates import Estimate, Values
from unweight.evaluation.model.language_model import LanguageModel
from unweight.evaluation.model.token_windows import TokenWindows
from unweight.operations.progress import Progress
from unweight_codecs.errors import FormatError, Parameter, Phrase, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

TITLE = "perplexity"


@dataclass(frozen=True, slots=True)
class PerplexityComparison:
    """Two models on the same tokens.

    Attributes:
        original: Perplexity of the first.
        candidate: Perplexity of the second.
        difference: candidate - original, paired token by token.
        kl_divergence: Mean of KL(original ‖ candidate) over the scored positions, in nats.
        same_top: Share of positions where both find the same token likeliest.
    """

    original: Estimate
    candidate: Estimate
    difference: Estimate
    kl_divergence: Estimate
    same_top: Estimate


def measure(model: LanguageModel, windows: TokenWindows, progress: Progress) -> Values:
    """Return the loss of every scored token, (windows, scored), in nats; NaN where logits are."""
    check_fit(model, windows)
    losses = np.empty(windows.targets.shape)
    progress.begin(TITLE, windows.nbytes)
    for number, ids in enumerate(windows.ids):
        losses[number] = losses_of(model.log_probabilities(ids, windows.first), windows, number)
        progress.advance(windows.step(number))
    progress.finish()
    return losses


def compare(
    original: LanguageModel, candidate: LanguageModel, windows: TokenWindows, progress: Progress
) -> PerplexityComparison:
    """Evaluate both models on every window and compare their distributions.

    Raises UsageError when they do not have the same vocabulary or cannot take such windows.
    """
    for model in (original, candidate):
        check_fit(model, windows)
    if original.vocabulary != candidate.vocabulary:
        raise UsageError(
            f"{original.name} and {candidate.name} have vocabularies of {original.vocabulary:,} "
            f"and {candidate.vocabulary:,} tokens and cannot be compared"
        )
    return compare_with(
        lambda number: original.log_probabilities(windows.ids[number], windows.first),
        candidate,
        windows,
        progress,
    )


def compare_with(
    original: "Callable[[int], torch.Tensor]",
    candidate: LanguageModel,
    windows: TokenWindows,
    progress: Progress,
) -> PerplexityComparison:
    """Compare a model with what another one predicts.

    ``original`` takes the number of a window and returns what ``log_probabilities`` does, on the
    device of ``candidate``.
    """
    shape = windows.targets.shape
    before, after, divergences = np.empty(shape), np.empty(shape), np.empty(shape)
    same = np.empty(shape, np.bool_)
    progress.begin(TITLE, windows.nbytes)
    for number, ids in enumerate(windows.ids):
        first = original(number)
        second = candidate.log_probabilities(ids, windows.first)
        before[number] = losses_of(first, windows, number)
        after[number] = losses_of(second, windows, number)
        divergences[number] = _divergence(first, second)
        same[number] = (first.argmax(-1) == second.argmax(-1)).cpu().numpy()
        progress.advance(windows.step(number))
    progress.finish()
    return PerplexityComparison(
        estimates.perplexity(before),
        estimates.perplexity(after),
        estimates.difference(before, after),
        estimates.mean(divergences),
        estimates.share(same),
    )


def check_fit(model: LanguageModel, windows: TokenWindows) -> None:
    """Raise unless ``model`` takes windows of this length and knows all of their tokens."""
    limit = model.context_limit
    if limit is not None and windows.context > limit:
        raise UsageError(
            f"{model.name}: takes at most {limit:,} tokens, not windows of {windows.context:,}",
            hint=Phrase("try ", Parameter("context", limit)),
        )
    highest = int(windows.ids.max())
    if highest >= model.vocabulary:
        raise FormatError(
            f"{model.name}: knows {model.vocabulary:,} tokens, but its tokenizer gives the token "
            f"{highest:,}",
            hint="is it the tokenizer of another model?",
        )


def losses_of(log_probabilities: "torch.Tensor", windows: TokenWindows, number: int) -> Values:
    """Return the losses of one window; NaN for a position with any logit that is not finite."""
    import torch

    targets = torch.from_numpy(windows.targets[number]).to(log_probabilities.device)
    losses = -log_probabilities.gather(1, targets[:, None])[:, 0]
    sound = log_probabilities.isfinite().all(dim=-1)
    return _values(losses.masked_fill(~sound, torch.nan))


def _divergence(first: "torch.Tensor", second: "torch.Tensor") -> Values:
    return _values((first.exp() * (first - second)).sum(-1))


def _values(tensor: "torch.Tensor") -> Values:
    return np.asarray(tensor.double().cpu().numpy())
