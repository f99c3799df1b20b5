"""What a change of the weights does to a language model, measured.

The functions here are those behind ``unweight verify --perplexity``, ``profile``, ``compare`` and
``compress --epsilon auto``. They need the extra ``eval``, and raise ResourceError without it. torch
and transformers are imported inside functions only, so that everything else works without them.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from unweight.evaluation.api import (
        check_perplexity,
        compare_methods,
        profile,
        search_epsilon,
    )
    from unweight.evaluation.compare.comparison_report import ComparisonReport, ComparisonRow
    from unweight.evaluation.measure.estimates import Estimate
    from unweight.evaluation.measure.perplexity_report import PerplexityReport, WindowsReport
    from unweight.evaluation.search import Attempt, SearchReport
    from unweight.evaluation.sensitivity.fisher import TensorSensitivity
    from unweight.evaluation.sensitivity.profile import ProfileReport

__all__ = [
    "Attempt",
    "ComparisonReport",
    "ComparisonRow",
    "Estimate",
    "PerplexityReport",
    "ProfileReport",
    "SearchReport",
    "TensorSensitivity",
    "WindowsReport",
    "check_perplexity",
    "compare_methods",
    "profile",
    "search_epsilon",
]

_HOMES: Final = {
    "Attempt": "unweight.evaluation.search",
    "ComparisonReport": "unweight.evaluation.compare.comparison_report",
    "ComparisonRow": "unweight.evaluation.compare.comparison_report",
    "Estimate": "unweight.evaluation.measure.estimates",
    "PerplexityReport": "unweight.evaluation.measure.perplexity_report",
    "ProfileReport": "unweight.evaluation.sensitivity.profile",
    "SearchReport": "unweight.evaluation.search",
    "TensorSensitivity": "unweight.evaluation.sensitivity.fisher",
    "WindowsReport": "unweight.evaluation.measure.perplexity_report",
    "check_perplexity": "unweight.evaluation.api",
    "compare_methods": "unweight.evaluation.api",
    "profile": "unweight.evaluation.api",
    "search_epsilon": "unweight.evaluation.api",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - it may be anything that is exported
    """Load what is asked for (PEP 562)."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return __all__
