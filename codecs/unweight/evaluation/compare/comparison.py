"""The use case of ``unweight compare``: one model made smaller in many ways, all of them measured.

Nothing is kept but numbers: there is one model in memory, whose matrices each method overwrites in
turn, and one compressed and restored copy of the files on disk at a time.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from unweight.evaluation.compare.comparison_report import ComparisonReport, ComparisonRow
from unweight.evaluation.compare.method_bench import Bench, NumberedRows, Subject
from unweight.evaluation.compare.methods import METHODS
from unweight.evaluation.extra import require_extra, require_packages
from unweight.evaluation.measure.perplexity_report import describe
from unweight.evaluation.measure.reference_predictions import open_reference
from unweight.evaluation.model.checkpoint import (
    GGUF,
    INDEX,
    archives_of,
    find_definition,
    is_bit_exact,
    model_files,
    open_checkpoint,
    open_weights,
)
from unweight.evaluation.model.language_model import (
    BEST_DEVICE,
    choose_device,
    limit_threads,
    load,
    parameters_of,
)
from unweight.evaluation.model.matrices import Inventory, take_inventory
from unweight.evaluation.model.token_windows import DEFAULT_CONTEXT, cut
from unweight.evaluation.model.tokenizer import load_tokenizer
from unweight.evaluation.text import Text, default_text, read_text
from unweight.operations.progress import Progress
from unweight.recipe import check_epsilon
from unweight_codecs.errors import FormatError, Parameter, Phrase, UsageError
from unweight_codecs.presets import PRESETS

EPSILONS: Final = (0.0025, 0.005, 0.01, 0.02, 0.05)
DEFAULT_WINDOWS: Final = 4  # there are many rows


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """What to compare.

    Attributes:
        path: Safetensors, compressed or not: a file, a directory or an index.
        text: A file with the text; None for the built-in one.
        model: A directory with config.json and tokenizer; None: they come with the weights.
        context: Tokens in a window.
        windows: How many windows to evaluate; 0 for all.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        epsilons: Error bounds to compress with.
        perplexity: Also measure what becomes of the model.
        threads: Worker threads; 0 for all.
    """

    path: Path
    text: Path | None = None
    model: Path | None = None
    context: int = DEFAULT_CONTEXT
    windows: int = DEFAULT_WINDOWS
    device: str = BEST_DEVICE
    epsilons: tuple[float, ...] = EPSILONS
    perplexity: bool = True
    threads: int = 0


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """A request that makes sense: ``text`` is None where no perplexity is measured."""

    request: ComparisonRequest
    text: Text | None


def plan(request: ComparisonRequest) -> ComparisonPlan:
    """Check whatever can be checked before minutes of work.

    Raises UsageError for a request that makes no sense and ResourceError when packages are missing.
    """
    for epsilon in request.epsilons:
        if not check_epsilon(epsilon):
            raise UsageError(
                "must be above 0: the lossless rows are there anyway", parameter="epsilons"
            )
    archives = archives_of(request.path)
    if not is_bit_exact(archives):
        raise UsageError(
            f"{request.path}: its weights are not the original ones", hint="compare the original"
        )
    if GGUF in model_files(request.path):
        raise UsageError(
            f"{request.path}: a GGUF model cannot be compared",
            hint="compare the safetensors it was converted from",
        )
    if not request.perplexity:
        require_packages("the comparison", (GGUF,))
        return ComparisonPlan(request, None)
    find_definition(request.path, request.model, None)
    text = default_text() if request.text is None else read_text(request.text)
    require_extra()
    choose_device(request.device)
    return ComparisonPlan(request, text)


def compare_methods(planned: ComparisonPlan, progress: Progress) -> ComparisonReport:
    """Measure a row for each way to make the model smaller.

    Raises FormatError for a model without matrices of finite floats, QualityGateError for one that
    gives no finite logits.
    """
    started, request = time.perf_counter(), planned.request
    with ExitStack() as stack:
        plain = stack.enter_context(
            open_weights(request.path, threads=request.threads, progress=progress)
        )
        files = tuple(file for name, file in model_files(plain).items() if name != INDEX)
        inventory = take_inventory(files)
        if not inventory.matrices:
            raise FormatError(f"{request.path}: holds no matrix of floats")
        numbered = NumberedRows(progress, 1 + len(PRESETS) + len(request.epsilons) + len(METHODS))
        numbered.row("original")
        subject = None
        if planned.text is not None:
            subject = _open_subject(request, planned.text, plain, inventory, numbered, stack)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="unweight-"))
        rows = tuple(
            _rows(
                Bench(inventory, files, Path(folder), request.threads, subject, numbered),
                request.epsilons,
            )
        )
    return ComparisonReport(
        source=str(request.path),
        matrices=len(inventory.matrices),
        matrix_weights=inventory.matrix_weights,
        weights=inventory.weights,
        unchanged=_unchanged(inventory),
        evaluated=subject.evaluated if subject else None,
        rows=rows,
        device=subject.model.device if subject else "",
        seconds=time.perf_counter() - started,
    )


def _open_subject(
    request: ComparisonRequest,
    text: Text,
    plain: Path,
    inventory: Inventory,
    progress: Progress,
    stack: ExitStack,
) -> Subject:
    limit_threads(request.threads)
    with open_checkpoint(
        plain, request.model, request.path, threads=request.threads, progress=progress
    ) as checkpoint:
        tokenizer = load_tokenizer(checkpoint.tokenizer)
        windows = cut(text, tokenizer, request.context, request.windows)
        model = load(replace(checkpoint, name=request.path), request.device)
    try:
        parameters = parameters_of(
            model, {matrix.name: matrix.shape for matrix in inventory.matrices}
        )
    except UsageError as error:
        raise UsageError(
            error.message,
            hint=Phrase(
                Parameter("perplexity", False), " compares sizes and errors of the weights alone"
            ),
        ) from error
    reference = stack.enter_context(open_reference(model, windows, progress))
    return Subject(model, parameters, reference, describe(windows, tokenizer.bos_token))


def _rows(bench: Bench, epsilons: tuple[float, ...]) -> Iterator[ComparisonRow]:
    yield bench.original()
    for preset in PRESETS:
        bench.progress.row(preset)
        yield bench.lossless(preset)
    for epsilon in epsilons:
        bench.progress.row(f"bounded {epsilon:g}")
        yield bench.bounded(epsilon)
    for method in METHODS:
        bench.progress.row(method.name)
        yield bench.method(method)


def _unchanged(inventory: Inventory) -> tuple[str, ...]:
    """Return the names of the matrices that some method cannot change."""
    block = max(method.block for method in METHODS)
    return tuple(matrix.name for matrix in inventory.matrices if matrix.shape[-1] % block)
