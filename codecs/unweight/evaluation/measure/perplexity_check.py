"""The use case of ``verify --perplexity``: what is asked for, checked early, then measured."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unweight.evaluation.extra import require_extra
from unweight.evaluation.measure import estimates, gate
from unweight.evaluation.measure.perplexity import PerplexityComparison, compare, measure
from unweight.evaluation.measure.perplexity_report import (
    MEASURED,
    PerplexityReport,
    describe,
    proven,
)
from unweight.evaluation.model.checkpoint import (
    archives_of,
    find_definition,
    is_bit_exact,
    open_checkpoint,
)
from unweight.evaluation.model.language_model import BEST_DEVICE, choose_device, limit_threads, load
from unweight.evaluation.model.token_windows import DEFAULT_CONTEXT, cut
from unweight.evaluation.model.tokenizer import load_tokenizer
from unweight.evaluation.text import Text, default_text, read_text
from unweight.operations.progress import Progress
from unweight_codecs.errors import Parameter, Phrase, UsageError

COMPARED: Final = (
    "original",
    "difference",
    "kl_divergence",
    "same_top",
)  # of a PerplexityComparison


@dataclass(frozen=True, slots=True)
class PerplexityRequest:
    """What to evaluate.

    Attributes:
        path: The checkpoint in question, compressed or not.
        against: The original, compressed or not; None: there is nothing to compare with.
        text: A file with the text; None for the built-in one.
        model: A directory with config.json and tokenizer; None: they come with the checkpoint.
        max_delta: The largest change of perplexity allowed; None for the usual one.
        context: Tokens in a window.
        windows: How many windows to evaluate; 0 for all.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        threads: Worker threads; 0 for all.
        measure: Measure although the weights are bit-exact.
    """

    path: Path
    against: Path | None = None
    text: Path | None = None
    model: Path | None = None
    max_delta: float | None = None
    context: int = DEFAULT_CONTEXT
    windows: int = 0
    device: str = BEST_DEVICE
    threads: int = 0
    measure: bool = False


@dataclass(frozen=True, slots=True)
class PerplexityPlan:
    """A request that makes sense: ``text`` is None where there is nothing to measure."""

    request: PerplexityRequest
    is_compressed: bool
    bit_exact: bool
    text: Text | None

    @property
    def max_delta(self) -> float | None:
        """The limit of the gate; None where there is nothing to compare with."""
        if self.request.against is None and not self.bit_exact:
            return None
        limit = self.request.max_delta
        return gate.DEFAULT_MAX_DELTA if limit is None else limit


def plan(request: PerplexityRequest) -> PerplexityPlan:
    """Check whatever can be checked before hours of work.

    Raises UsageError for a request that makes no sense and ResourceError when it has to be
    measured but cannot be here.
    """
    if request.max_delta is not None:
        gate.check_max_delta(request.max_delta)
    archives = archives_of(request.path)
    bit_exact = bool(archives) and is_bit_exact(archives)
    if request.max_delta is not None and request.against is None and not bit_exact:
        raise UsageError(
            f"has no effect: the perplexity of the original of {request.path} is not known",
            parameter="max_delta",
            hint=Phrase(Parameter("against"), " names the original"),
        )
    if bit_exact and not request.measure:
        return PerplexityPlan(request, is_compressed=True, bit_exact=True, text=None)
    for path, other in _pairs(request):
        find_definition(path, request.model, other)
    text = default_text() if request.text is None else read_text(request.text)
    require_extra()
    choose_device(request.device)
    return PerplexityPlan(request, bool(archives), bit_exact, text)


def evaluate(planned: PerplexityPlan, progress: Progress) -> PerplexityReport:
    """Measure what ``planned`` asks for; see ``perplexity`` for the definition."""
    if planned.text is None:
        return proven(planned.max_delta)
    request, started = planned.request, time.perf_counter()
    limit_threads(request.threads)
    with ExitStack() as stack:
        checkpoints = [
            stack.enter_context(
                open_checkpoint(
                    path, request.model, other, threads=request.threads, progress=progress
                )
            )
            for path, other in _pairs(request)
        ]
        tokenizer = load_tokenizer(checkpoints[0].tokenizer)
        windows = cut(planned.text, tokenizer, request.context, request.windows)
        model, *originals = [load(checkpoint, request.device) for checkpoint in checkpoints]
    comparison: PerplexityComparison | None = None
    if originals:
        comparison = compare(originals[0], model, windows, progress)
        restored = comparison.candidate
    else:
        restored = estimates.perplexity(measure(model, windows, progress))
    numbers = {name: getattr(comparison, name, None) for name in COMPARED}
    limit = planned.max_delta
    return PerplexityReport(
        verdict=MEASURED,
        bit_exact=planned.bit_exact,
        evaluated=describe(windows, tokenizer.bos_token),
        restored=restored,
        **numbers,
        max_delta=limit,
        vocabulary=model.vocabulary,
        device=model.device,
        seconds=time.perf_counter() - started,
        failure=gate.failure(
            restored, model.vocabulary, numbers["original"], numbers["difference"], limit
        ),
    )


def _pairs(request: PerplexityRequest) -> list[tuple[Path, Path | None]]:
    """Return each checkpoint with the other one, if there is one."""
    if request.against is None:
        return [(request.path, None)]
    return [(request.path, request.against), (request.against, request.path)]
