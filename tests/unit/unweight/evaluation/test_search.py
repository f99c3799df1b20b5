"""The search for the largest error bound, without a model: what it tries, and when it ends."""

import math
from collections.abc import Callable

import pytest

from unweight.evaluation.measure.estimates import Estimate
from unweight.evaluation.search import FIRST, MAX_ATTEMPTS, Attempt, EpsilonSearch, SearchReport

VOCABULARY = 1000


def run(change_of: Callable[[float], float], limit: float) -> EpsilonSearch:
    """Search with a model whose perplexity changes as ``change_of`` says."""
    search = EpsilonSearch(limit, VOCABULARY, Estimate(30, 1))
    while (epsilon := search.next()) is not None:
        change = change_of(epsilon)
        search.attempts.append(Attempt(epsilon, Estimate(30 + change, 1), Estimate(change, 0.001)))
    return search


@pytest.mark.parametrize("scale", [1, 30, 1e3, 1e5])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_change_that_grows_with_the_square(scale: float, sign: int) -> None:
    search = run(lambda epsilon: sign * scale * epsilon**2, 0.01)
    best = search.best
    assert best is not None
    largest = (0.01 / scale) ** 0.5
    assert 0.75 * largest <= best.epsilon <= largest or best.epsilon > 0.15
    assert len(search.attempts) <= MAX_ATTEMPTS


def test_the_first_attempt_may_be_good_enough() -> None:
    exact = 0.01 / FIRST**2
    search = run(lambda epsilon: exact * epsilon**2 * 0.95, 0.01)
    assert search.best is not None
    assert len(search.attempts) <= 2


def test_noise_does_not_make_it_try_for_ever() -> None:
    noise = iter([0.02, -0.001, 0.012, 0.0002, -0.013, 0.009, 0.5])
    search = run(lambda epsilon: next(noise), 0.01)
    assert len(search.attempts) <= MAX_ATTEMPTS
    best = search.best
    assert best is not None
    assert abs(best.difference.value) <= 0.01


def test_no_attempt_repeats_another() -> None:
    for limit in (1e-4, 0.01, 1.0):
        search = run(lambda epsilon: 50 * epsilon**1.5, limit)
        tried = [attempt.epsilon for attempt in search.attempts]
        assert len(set(tried)) == len(tried)


@pytest.mark.parametrize("change", [5.0, float("nan"), float("inf")])
def test_a_model_that_bears_nothing_ends_without_a_bound(change: float) -> None:
    search = run(lambda epsilon: change, 0.01)
    assert search.best is None
    tried = [attempt.epsilon for attempt in search.attempts]
    assert tried == sorted(tried, reverse=True)
    assert len(tried) == MAX_ATTEMPTS


def test_a_perplexity_of_guessing_does_not_pass_however_much_is_allowed() -> None:
    search = run(lambda epsilon: 2e5 * epsilon, 1e6)
    assert search.best is not None
    assert search.best.perplexity.value < VOCABULARY
    shut = [a for a in search.attempts if a.perplexity.value >= VOCABULARY]
    assert shut
    assert all("no better than guessing" in search.failure(attempt) for attempt in shut)
    assert all(attempt.epsilon > search.best.epsilon for attempt in shut)


def test_no_bound_is_beyond_the_limits_of_the_search() -> None:
    for scale in (0.0, 1e9, math.nan):
        tried = [a.epsilon for a in run(lambda epsilon: scale, 1e-9).attempts]  # noqa: B023
        assert all(1e-5 <= epsilon <= 0.5 for epsilon in tried)


def test_a_model_that_bears_everything_ends_at_large_bounds() -> None:
    search = run(lambda epsilon: 0.0, 0.01)
    assert search.best is not None
    assert search.best.epsilon > 0.1


def test_json_has_every_attempt_and_no_nan() -> None:
    search = run(lambda epsilon: float("nan"), 0.01)
    report = SearchReport(search.max_delta, search.attempts[0], tuple(search.attempts))
    found = report.to_dict()
    assert found["epsilon"] == FIRST
    assert len(found["attempts"]) == len(search.attempts)
    assert found["attempts"][0]["difference"]["value"] is None
