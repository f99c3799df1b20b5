"""The gate: when a measurement means that the weights are not good enough."""

import math
from typing import Final

from unweight_cli.evaluation.estimates import Estimate
from unweight_codecs.errors import UsageError

DEFAULT_MAX_DELTA: Final = 0.01


def check_max_delta(max_delta: float) -> float:
    """Return ``max_delta``; raises UsageError unless it is a number from 0 up."""
    if not (math.isfinite(max_delta) and max_delta >= 0):
        raise UsageError(f"--max-delta {max_delta:g}: must be a number from 0 up")
    return max_delta


def failure(
    restored: Estimate,
    vocabulary: int,
    original: Estimate | None = None,
    difference: Estimate | None = None,
    max_delta: float | None = None,
) -> str:
    """Return why the gate is shut, in words; "" when it is open.

    Args:
        restored: Perplexity of the weights in question.
        vocabulary: Number of tokens; equal guesses among them have this perplexity.
        original: Perplexity of the original weights, where there are any.
        difference: restored - original, where there is an original.
        max_delta: The largest difference, up or down, that is allowed; None: any is.
    """
    for owner, perplexity in ((" of the original", original), ("", restored)):
        if perplexity is not None and not perplexity.is_finite:
            return f"the perplexity{owner} is {perplexity.value}: the model gives no finite logits"
    if restored.value >= vocabulary:
        return (
            f"the perplexity is {restored.value:.4g}, no better than guessing among "
            f"{vocabulary:,} tokens"
        )
    if difference is not None and max_delta is not None and abs(difference.value) > max_delta:
        return f"the perplexity changes by {difference.value:+.4g}, more than {max_delta:g}"
    return ""
