"""Estimates with their standard errors, and what the gate makes of them."""

import json
import math

import numpy as np
import pytest

from unweight.evaluation.measure import estimates
from unweight.evaluation.measure.estimates import Estimate
from unweight.evaluation.measure.gate import check_max_delta, failure
from unweight.evaluation.measure.perplexity_report import proven
from unweight_codecs.errors import UsageError

VOCABULARY = 1000
GENERATOR = np.random.default_rng(5)
BEFORE = GENERATOR.gamma(2.0, 1.5, 4000)
AFTER = BEFORE + GENERATOR.normal(0.01, 0.1, BEFORE.size)


def test_perplexity_as_llama_cpp_prints_it() -> None:
    # The sums of its tools/perplexity: Σ loss and Σ loss², divided by the number of tokens.
    count, total, squares = BEFORE.size, float(BEFORE.sum()), float((BEFORE**2).sum())
    average = total / count
    spread = math.sqrt((squares / count - average**2) / (count - 1))
    found = estimates.perplexity(BEFORE)
    assert found.value == pytest.approx(math.exp(average), rel=1e-12)
    assert found.standard_error == pytest.approx(spread * math.exp(average), rel=1e-9)


def test_the_difference_as_llama_cpp_prints_it() -> None:
    # Variances of both perplexities less twice their covariance.
    before, after = estimates.perplexity(BEFORE), estimates.perplexity(AFTER)
    covariance = float(np.cov(BEFORE, AFTER, bias=True)[0, 1]) / (BEFORE.size - 1)
    variance = (
        before.standard_error**2
        + after.standard_error**2
        - 2 * before.value * after.value * covariance
    )
    found = estimates.difference(BEFORE, AFTER)
    assert found.value == pytest.approx(after.value - before.value)
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=1e-6)
    assert found.standard_error < before.standard_error / 5


def test_a_loss_that_is_no_number_spoils_everything() -> None:
    spoilt = BEFORE.copy()
    spoilt[7] = math.nan
    assert not estimates.perplexity(spoilt).is_finite
    assert not estimates.difference(BEFORE, spoilt).is_finite
    assert estimates.perplexity(np.full(9, 1000.0)).value == math.inf


def test_shares() -> None:
    found = estimates.share(np.arange(100) < 90)
    assert found.value == pytest.approx(0.9)
    assert found.standard_error == pytest.approx(math.sqrt(0.09 / 99))


@pytest.mark.parametrize(
    ("restored", "original", "delta", "words"),
    [
        (20.0, None, None, ""),
        (20.0, 20.01, -0.01, ""),
        (20.0, 20.02, -0.02, "changes by -0.02"),
        (20.0, 19.98, 0.02, "changes by +0.02, more than 0.01"),
        (999.0, None, None, ""),
        (1000.0, None, None, "no better than guessing among 1,000 tokens"),
        (1e5, 1e5, 0.0, "no better than guessing"),
        (math.nan, None, None, "the perplexity is nan"),
        (math.inf, 20.0, math.inf, "the perplexity is inf"),
        (20.0, math.nan, math.nan, "the perplexity of the original is nan"),
    ],
)
def test_the_gate(restored: float, original: float | None, delta: float | None, words: str) -> None:
    found = failure(
        Estimate(restored, 0.5),
        VOCABULARY,
        None if original is None else Estimate(original, 0.5),
        None if delta is None else Estimate(delta, 0.001),
        0.01,
    )
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize("max_delta", [-0.1, math.nan, math.inf])
def test_limits_that_are_none(max_delta: float) -> None:
    with pytest.raises(UsageError, match="max_delta must be a number from 0 up"):
        check_max_delta(max_delta)


def test_json_has_no_nan() -> None:
    document = json.dumps(Estimate(math.nan, math.inf).to_dict(), allow_nan=False)
    assert json.loads(document) == {"value": None, "standard_error": None}
    assert json.loads(json.dumps(proven(0.01).to_dict()))["difference"]["value"] == 0
