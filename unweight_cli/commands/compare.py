"""``unweight compare``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweight_cli.options import (
    Context,
    Debug,
    EvaluationText,
    Force,
    Json,
    ModelDevice,
    ModelDirectory,
    Quiet,
    SafetensorsCheckpoint,
    Threads,
    examples,
    input_path,
    require_exists,
)
from unweight_cli.terminal.console import emit
from unweight_cli.terminal.progress import progress_bars
from unweight_codecs.errors import UsageError

if TYPE_CHECKING:
    from unweight.evaluation.compare.comparison_report import ComparisonReport

EXAMPLES = examples(
    "unweight compare checkpoint/",
    "unweight compare checkpoint/ --text text.txt --windows 32 --plot comparison.svg",
    "unweight compare model.safetensors --no-perplexity --epsilon 0.003 --epsilon 0.03",
)


def compare(
    path: SafetensorsCheckpoint,
    text: EvaluationText = None,
    model: ModelDirectory = None,
    windows: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Windows to measure; 4 unless given, 0 means the whole text."
        ),
    ] = None,
    context: Context = None,
    device: ModelDevice = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            metavar="E",
            help="An error bound to compress with, in place of the usual ones; may be repeated.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=input_path, help="Also draw it, to a .svg or .png file."
        ),
    ] = None,
    no_perplexity: Annotated[
        bool,
        typer.Option(
            "--no-perplexity", show_default=False, help="Compare sizes and weights alone."
        ),
    ] = False,
    threads: Threads = 0,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare ways to make a model smaller, measured on that model.

    One table: the original, the lossless presets, several error bounds, quantisation to 8 and 4
    bits, and pruning; each with its size, the error of its weights, and what it does to the
    perplexity. This needs torch and transformers: pip install 'unweight[eval]'. Nothing is written
    but the plot.
    """
    for given in (path, text, model):
        if given is not None:
            require_exists(given)
    settings = {
        "text": text,
        "model": model,
        "windows": windows,
        "context": context,
        "device": device,
    }
    chosen: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if chosen and no_perplexity:
        names = ", ".join(f"--{name}" for name in chosen)
        raise UsageError(f"{names}: has no effect with --no-perplexity")
    if epsilon:
        chosen["epsilons"] = epsilon
    import unweight
    from unweight_cli.render.comparison import comparison

    kind = _plot_format(path, plot, force=force)
    with progress_bars(quiet=quiet) as progress:
        report = unweight.evaluation.compare_methods(
            path, perplexity=not no_perplexity, threads=threads, progress=progress, **chosen
        )
    if plot is not None:
        _write_plot(report, plot, kind, force=force)
    emit(report.to_dict(), lambda: comparison(report), as_json=json, quiet=quiet)


def _plot_format(path: Path, plot: Path | None, *, force: bool) -> str:
    """Return the format of the plot; raise whatever would keep it from being written."""
    from unweight.evaluation.extra import require_packages
    from unweight.output import check_target
    from unweight_cli.render.rate_distortion import FORMATS

    if plot is None:
        return ""
    kind = FORMATS.get(plot.suffix.lower())
    if kind is None:
        raise UsageError(f"--plot {plot}: unknown kind of file", hint="name a .svg or .png file")
    check_target(path, plot, force=force)
    require_packages("a plot", ("matplotlib",))
    return kind


def _write_plot(report: "ComparisonReport", plot: Path, kind: str, *, force: bool) -> None:
    from unweight.output import atomic_file, write_all
    from unweight_cli.render.rate_distortion import drawn

    data = drawn(report, kind)
    with atomic_file(plot, len(data), force=force) as file:
        write_all(file, data)
