"""The evaluations as functions, with arguments called as the options of the commands."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from unweight.evaluation.compare import comparison
from unweight.evaluation.compare.comparison_report import ComparisonReport
from unweight.evaluation.compression import SEARCHED, BoundSettings, choose_bound
from unweight.evaluation.measure import perplexity_check
from unweight.evaluation.measure.perplexity_report import PerplexityReport
from unweight.evaluation.model.language_model import BEST_DEVICE
from unweight.evaluation.model.token_windows import DEFAULT_CONTEXT
from unweight.evaluation.search import SearchReport
from unweight.evaluation.sensitivity import profile as profiling
from unweight.operations.compression_plan import CompressOptions, plan_compression
from unweight.operations.progress import NoProgress, Progress
from unweight.paths import StrPath, optional_path, path_of
from unweight.stage_settings import StageSetting
from unweight_codecs.presets import DEFAULT

_SILENT = NoProgress()


def check_perplexity(
    path: StrPath,
    against: StrPath | None = None,
    *,
    text: StrPath | None = None,
    model: StrPath | None = None,
    max_delta: float | None = None,
    context: int = DEFAULT_CONTEXT,
    windows: int = 0,
    device: str = BEST_DEVICE,
    measure: bool = False,
    threads: int = 0,
    progress: Progress = _SILENT,
) -> PerplexityReport:
    """Measure how well the weights of a checkpoint predict a text, as llama.cpp does.

    A closed gate is no error: the report says so in ``failure``. Compressed files are decoded with
    all checks, but ``unweight.verify`` is what compares them with their original.

    Args:
        path: A checkpoint, compressed or not.
        against: Its original, to measure the difference.
        text: A file with the text; one is built in.
        model: A directory with config.json and tokenizer, if they are not in or beside ``path``.
        max_delta: The largest change of perplexity against the original, up or down, for the gate;
            0.01 unless given.
        context: Tokens in a window.
        windows: How many windows to measure; 0 for all.
        device: Where the model runs: ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"`` for the
            best there is.
        measure: Measure even weights that are bit-exact by proof.
        threads: Worker threads; 0 means as many as the process may use.
        progress: Told how far the work is.

    Raises:
        UsageError: Arguments that make no sense, or a text that is too short.
        FormatError: Not a model that can be loaded.
        IntegrityError: A compressed file is damaged.
        ResourceError: A package of the extra ``eval`` is missing, or not enough memory.
    """
    request = perplexity_check.PerplexityRequest(
        path_of(path, "path"),
        optional_path(against, "against"),
        optional_path(text, "text"),
        optional_path(model, "model"),
        max_delta=max_delta,
        context=context,
        windows=windows,
        device=device,
        threads=threads,
        measure=measure,
    )
    return perplexity_check.evaluate(perplexity_check.plan(request), progress)


def profile(
    path: StrPath,
    calibration: StrPath,
    output: StrPath = "sensitivity.json",
    *,
    model: StrPath | None = None,
    context: int = DEFAULT_CONTEXT,
    windows: int = profiling.DEFAULT_WINDOWS,
    device: str = BEST_DEVICE,
    threads: int = 0,
    force: bool = False,
    progress: Progress = _SILENT,
) -> profiling.ProfileReport:
    """Measure how much each tensor of a model matters, and write that to a file.

    Args:
        path: A checkpoint of safetensors, compressed or not.
        calibration: A file with text like what the model is for.
        output: Where to write the result.
        model: A directory with config.json and tokenizer, if they are not in or beside ``path``.
        context: Tokens in a window.
        windows: How many windows to use; 0 means the whole text.
        device: Where the model runs; see ``check_perplexity``.
        threads: Worker threads; 0 means as many as the process may use.
        force: Replace an existing output.
        progress: Told how far the work is.

    Raises:
        UsageError: Arguments that make no sense, or a GGUF model.
        FormatError: Not a model that can be loaded.
        QualityGateError: Gradients are not finite.
        ResourceError: A package of the extra ``eval`` is missing, or not enough memory.
    """
    request = profiling.ProfileRequest(
        path_of(path, "path"),
        path_of(calibration, "calibration"),
        path_of(output, "output"),
        optional_path(model, "model"),
        context=context,
        windows=windows,
        device=device,
        threads=threads,
        force=force,
    )
    return profiling.profile(request, progress)


def compare_methods(
    path: StrPath,
    *,
    text: StrPath | None = None,
    model: StrPath | None = None,
    windows: int = comparison.DEFAULT_WINDOWS,
    context: int = DEFAULT_CONTEXT,
    device: str = BEST_DEVICE,
    epsilons: Iterable[float] = comparison.EPSILONS,
    perplexity: bool = True,
    threads: int = 0,
    progress: Progress = _SILENT,
) -> ComparisonReport:
    """Compare ways to make a model smaller: presets, error bounds, quantisation, pruning.

    Args:
        path: A checkpoint of safetensors, compressed or not.
        text: A file with the text to measure perplexity on; one is built in.
        model: A directory with config.json and tokenizer, if they are not in or beside ``path``.
        windows: How many windows to measure; 0 means the whole text.
        context: Tokens in a window.
        device: Where the model runs; see ``check_perplexity``.
        epsilons: Error bounds to compress with.
        perplexity: Whether to measure what becomes of the model, or sizes and weights alone.
        threads: Worker threads; 0 means as many as the process may use.
        progress: Told how far the work is.

    Raises:
        UsageError: Arguments that make no sense, or a GGUF model.
        FormatError: Not a model that can be loaded, or one without matrices of finite floats.
        QualityGateError: The model gives no finite logits.
        ResourceError: A package of the extra ``eval`` is missing, or not enough memory or space.
    """
    request = comparison.ComparisonRequest(
        path_of(path, "path"),
        optional_path(text, "text"),
        optional_path(model, "model"),
        context=context,
        windows=windows,
        device=device,
        epsilons=tuple(dict.fromkeys(epsilons)),
        perplexity=perplexity,
        threads=threads,
    )
    return comparison.compare_methods(comparison.plan(request), progress)


def search_epsilon(
    path: StrPath,
    *,
    max_ppl_delta: float,
    preset: str = DEFAULT,
    recipe: StrPath | None = None,
    stages: Iterable[StageSetting | str] = (),
    sensitivity: StrPath | None = None,
    text: StrPath | None = None,
    model: StrPath | None = None,
    windows: int | None = None,
    device: str | None = None,
    threads: int = 0,
    progress: Progress = _SILENT,
) -> SearchReport:
    """Find the largest error bound that changes the perplexity by at most ``max_ppl_delta``.

    This is what ``unweight.compress`` does first with ``epsilon="auto"``, and arguments and errors
    are those of it; nothing is kept but the report.
    """
    settings = BoundSettings(
        epsilon=SEARCHED,
        sensitivity=optional_path(sensitivity, "sensitivity"),
        max_ppl_delta=max_ppl_delta,
        text=optional_path(text, "text"),
        model=optional_path(model, "model"),
        windows=windows,
        device=device,
    )
    options = CompressOptions(
        preset,
        optional_path(recipe, "recipe"),
        tuple(stages),
        threads,
        epsilon=settings.first_epsilon(),
    )
    with tempfile.TemporaryDirectory(prefix="unweight-") as folder:
        plan = plan_compression(path_of(path, "path"), Path(folder, "compressed"), options)
        found = choose_bound(plan, settings, progress).search
    assert found is not None  # noqa: S101 - it is what was asked for
    return found
