"""The gate: when a measurement means that the weights are not good enough."""

import math
from typing import Final

from unweight.evaluation.measure.estimates import Estimate
from unweight_codecs.errors import UsageError

DEFAULT_MAX_DELTA: Final = 0.01


def check_max_delta(max_delta: float) -> float:
    """Return ``max_delta``; raises UsageError unless it is a number from 0 up."""
    if not (math.isfinite(max_delta) and max_delta >= 0):
        raise UsageError(f"must be a number from 0 up, not {max_delta:g}", parameter="max_delta")
    return max_delta


def failure(
    restored: Estimate,
    vocabulary: int,
    original: Estimate | None = None,
    difference: Estimate | None = None,
    max_delta: float | None = None,
) -> str:
    """Return why the gate is closed, in words; "" when it is open.

    Args:
        restored: Perplexity of the weights in question.
        vocabulary: Number of tokens; equal guesses among them have this perplexity.
        original: Perplexity of the original weights, where there are any.
        difference: restored - original, where there is an original.
        max_delta: The largest difference, up or down, that is allowed; None: any is.
    """
    if original is not None and (reason := unsound_original(original, vocabulary)):
        return reason
    if reason := _unsound(restored, vocabulary, "the perplexity"):
        return reason
    if difference is not None and max_delta is not None and abs(difference.value) > max_delta:
        return f"the perplexity changes by {difference.value:+.4g}, more than {max_delta:g}"
    return ""


def unsound_original(original: Estimate, vocabulary: int) -> str:
    """Return why the original is no measure for anything on this text; "" when it is one."""
    reason = _unsound(original, vocabulary, "the perplexity of the original")
    foreign = bool(reason) and original.is_finite
    return f"{reason}: is the text in the model's language?" if foreign else reason


def _unsound(perplexity: Estimate, vocabulary: int, owner: str) -> str:
    if not perplexity.is_finite:
        return f"{owner} is {perplexity.value}: the model gives no finite logits"
    if perplexity.value >= vocabulary:
        return (
            f"{owner} is {perplexity.value:.4g}, no better than guessing among "
            f"{vocabulary:,} tokens"
        )
    return ""
