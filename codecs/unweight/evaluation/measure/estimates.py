"""Means over scored tokens with their standard errors, as llama.cpp computes them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its standard error."""

    value: float
    standard_error: float

    @property
    def is_finite(self) -> bool:
        """Tell whether the value is a number."""
        return math.isfinite(self.value)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON-ready data; what is not finite is None."""
        return {"value": finite(self.value), "standard_error": finite(self.standard_error)}


def finite(value: float) -> float | None:
    """Return ``value``, or None for NaN and infinities, which JSON does not have."""
    return value if math.isfinite(value) else None


def mean(values: Values) -> Estimate:
    """Return the mean of ``values`` and its standard error; NaN if one of them is."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = math.sqrt(values.var() / (values.size - 1)) if values.size > 1 else math.nan
        return Estimate(float(values.mean()), error)


def perplexity(losses: Values) -> Estimate:
    """Return exp of the mean of ``losses``, negative log-likelihoods in nats per token."""
    average = mean(losses)
    value = _exp(average.value)
    return Estimate(value, value * average.standard_error)


def difference(original: Values, candidate: Values) -> Estimate:
    """Return by how much the perplexity of ``candidate`` is higher, both on the same tokens.

    To first order the difference changes with the losses as P₂·loss₂ - P₁·loss₁ does, whose
    standard error is far below that of either perplexity: most of the noise is common to both.
    """
    before, after = perplexity(original).value, perplexity(candidate).value
    with np.errstate(invalid="ignore", over="ignore"):
        return Estimate(after - before, mean(after * candidate - before * original).standard_error)


def share(flags: NDArray[np.bool_]) -> Estimate:
    """Return the share of ``flags`` that are set."""
    return mean(flags.astype(np.float64))


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
