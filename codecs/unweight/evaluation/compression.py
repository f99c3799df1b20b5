"""How much error ``compress`` may make where that is measured: a search, a profile, or neither."""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from unweight.evaluation.search import FIRST, SearchReport, SearchRequest, search
from unweight.evaluation.sensitivity.sharing import Sharing, open_sharing
from unweight.evaluation.text import default_text, read_text
from unweight.operations.compress import compress_planned
from unweight.operations.compression_plan import CompressionPlan
from unweight.operations.progress import Progress
from unweight.operations.report import OperationReport
from unweight.recipe import check_epsilon
from unweight_codecs.errors import Parameter, Phrase, UsageError, quoted

SEARCHED: Final = "auto"  # in place of an error bound
_ADDED: Final = ("search", "sensitivity")


@dataclass(frozen=True, slots=True)
class BoundSettings:
    """Which error is allowed, or how to find out; see ``unweight.compress``."""

    epsilon: float | str = 0.0
    sensitivity: Path | None = None
    max_ppl_delta: float | None = None
    text: Path | None = None
    model: Path | None = None
    windows: int | None = None
    device: str | None = None

    @property
    def is_searched(self) -> bool:
        """Whether the error bound is to be found by measuring."""
        return self.epsilon == SEARCHED

    def first_epsilon(self) -> float:
        """Return the error bound, or the one that a search begins with.

        Raises UsageError for settings that make no sense or have no effect.
        """
        if self.is_searched:
            _check_limit(self.max_ppl_delta)
            return FIRST
        searched = ("max_ppl_delta", "text", "model", "windows", "device")
        given = [name for name in searched if getattr(self, name) is not None]
        if given:
            raise UsageError(
                Phrase(*_listed(given), ": has no effect without ", Parameter("epsilon", SEARCHED))
            )
        if isinstance(self.epsilon, str):
            raise UsageError(
                f"must be a number or {SEARCHED}, not {quoted(self.epsilon)}", parameter="epsilon"
            )
        epsilon = check_epsilon(self.epsilon)
        if self.sensitivity is not None and not epsilon:
            raise UsageError(
                Phrase(Parameter("sensitivity"), ": has no effect without ", Parameter("epsilon"))
            )
        return epsilon


@dataclass(frozen=True, slots=True)
class BoundChoice:
    """A plan with its final error bounds, and how they were found.

    ``search`` is None where the common bound was given, ``sharing`` where it holds for each tensor.
    """

    plan: CompressionPlan
    search: SearchReport | None
    sharing: Sharing | None


@dataclass(frozen=True, slots=True)
class CompressReport(OperationReport):
    """What ``compress`` did.

    ``search`` is how the error bound was found, where it was not given, ``sensitivity`` how it was
    shared out, where it was.
    """

    search: SearchReport | None = None
    sensitivity: Sharing | None = None

    @classmethod
    def of(cls, report: OperationReport, choice: BoundChoice) -> "CompressReport":
        """Return the report of a run, and how its error bounds came about."""
        values = {field.name: getattr(report, field.name) for field in fields(OperationReport)}
        return cls(**values, search=choice.search, sensitivity=choice.sharing)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data, without what there is not."""
        document = asdict(replace(self, search=None, sensitivity=None))
        parts = {name: getattr(self, name) for name in _ADDED}
        added = {name: part.to_dict() for name, part in parts.items() if part is not None}
        return {name: value for name, value in document.items() if name not in _ADDED} | added


def choose_bound(plan: CompressionPlan, settings: BoundSettings, progress: Progress) -> BoundChoice:
    """Return the plan with the error bounds that ``settings`` ask for.

    Raises FormatError and UsageError about the sensitivity file, and what ``search`` raises.
    """
    sharing = None
    if settings.sensitivity is not None:
        sharing = open_sharing(settings.sensitivity, plan, progress)

    def within(epsilon: float) -> CompressionPlan:
        return plan.within(epsilon, sharing.bounds(epsilon) if sharing else None)

    if not settings.is_searched:
        return BoundChoice(within(plan.options.epsilon), None, sharing)

    def attempt(epsilon: float, target: Path) -> None:
        compress_planned(within(epsilon).to(target), progress)

    found = search(_request(plan, settings), attempt, progress)
    return BoundChoice(within(found.best.epsilon), found, sharing)


def _request(plan: CompressionPlan, settings: BoundSettings) -> SearchRequest:
    request = SearchRequest(
        plan.job.source,
        _check_limit(settings.max_ppl_delta),
        default_text() if settings.text is None else read_text(settings.text),
        settings.model,
        windows=settings.windows or 0,
        threads=plan.options.threads,
    )
    return request if settings.device is None else replace(request, device=settings.device)


def _check_limit(limit: float | None) -> float:
    if limit is None:
        raise UsageError(
            Phrase("is missing with ", Parameter("epsilon", SEARCHED)),
            parameter="max_ppl_delta",
            hint="0.01 is hardly noticeable",
        )
    if not 0 < limit < float("inf"):
        raise UsageError(f"must be a number above 0, not {limit:g}", parameter="max_ppl_delta")
    return limit


def _listed(names: list[str]) -> list[str | Parameter]:
    first, *others = map(Parameter, names)
    return [first, *(part for other in others for part in (", ", other))]
