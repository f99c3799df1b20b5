"""``unweight compress``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweight_cli.options import (
    Checkpoint,
    Debug,
    EvaluationText,
    Force,
    Json,
    ModelDevice,
    ModelDirectory,
    Output,
    Quiet,
    Threads,
    Windows,
    complete_preset,
    examples,
    input_path,
    require_exists,
)
from unweight_cli.terminal.console import emit
from unweight_cli.terminal.progress import progress_bars
from unweight_cli.terminal.streams import note
from unweight_codecs.errors import UsageError

if TYPE_CHECKING:
    from unweight.evaluation.search import Search
    from unweight.evaluation.sensitivity.sharing import Sharing
    from unweight.operations.compress import CompressOptions
    from unweight.operations.progress import Progress

AUTO = "auto"
EXAMPLES = examples(
    "unweight compress model.safetensors",
    "unweight compress model.gguf --threads 4",
    "unweight compress checkpoint/ -o checkpoint.unweight --preset max",
    "unweight compress checkpoint/ --epsilon 0.005",
    "unweight compress checkpoint/ --epsilon auto --max-ppl-delta 0.01",
    "unweight compress model.safetensors --json --force > report.json",
)


def compress(
    path: Checkpoint,
    output: Output = None,
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_preset,
            help="fast, default or max: how much time to spend on size. stored leaves tensors "
            "without a rule as they are.",
        ),
    ] = "default",
    epsilon: Annotated[
        str,
        typer.Option(
            metavar="E",
            help="Relative error allowed in matrices of floats, 0 to 1; auto searches it.",
        ),
    ] = "0",
    max_ppl_delta: Annotated[
        float | None,
        typer.Option(
            metavar="D", help="With --epsilon auto: the largest change of perplexity to accept."
        ),
    ] = None,
    sensitivity: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=input_path,
            help="What `unweight profile` wrote: E is then that of all matrices together.",
        ),
    ] = None,
    text: EvaluationText = None,
    model: ModelDirectory = None,
    windows: Windows = None,
    device: ModelDevice = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=input_path, help="TOML file: which tensors get which pipeline."
        ),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:KEY=VALUE", help="Set one value of a stage; repeatable."),
    ] = None,
    threads: Threads = 0,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compress a checkpoint: bit-exactly, or with --epsilon within an error bound.

    Every tensor is decoded again and compared before the output gets its name. model.safetensors
    becomes model.unweight.safetensors, model.gguf becomes model.unweight.gguf, a directory DIR
    becomes DIR.unweight.

    With --epsilon E the root of the summed squares of a matrix's errors is at most E times that of
    its weights. With --sensitivity this holds for all matrices together, and each gets a bound of
    its own: a small one where the model depends on it. With --epsilon auto, E is the largest found
    that changes the perplexity by at most --max-ppl-delta, between 1e-5 and 0.5 with at most six
    evaluations; exit code 5 means that none was, or that the original fails on the text. --text,
    --model, --windows and --device are for that. It needs torch and transformers: pip install
    'unweight[eval]'.
    """
    for given in (path, recipe, sensitivity, text, model):
        if given is not None:
            require_exists(given)
    from unweight.manifest import LARGEST_EPSILON
    from unweight.operations.compress import CompressOptions, plan
    from unweight.operations.compress import compress as run
    from unweight_cli.render.operations import compressed

    searched = {
        "max_ppl_delta": max_ppl_delta,
        "text": text,
        "model": model,
        "windows": windows,
        "device": device,
    }
    bound = _bound(epsilon, searched, sensitivity)
    options = CompressOptions(
        preset=preset,
        recipe=recipe,
        stages=tuple(stage or ()),
        threads=threads,
        force=force,
        epsilon=LARGEST_EPSILON if bound is None else bound,  # any will do for the plan
    )
    plan(path, output, options)  # whatever is wrong with these is found before anything takes long
    found = sharing = None
    with progress_bars(quiet=quiet) as progress:
        if sensitivity is not None:
            from unweight.evaluation.sensitivity.sharing import open_sharing

            sharing = open_sharing(sensitivity, path, progress)
        if bound is None:
            found = _search(path, options, sharing, searched, progress)
            bound = found.best.epsilon if found.best else 0.0
        report = run(path, output, _shared_out(options, bound, sharing), progress)
    for words in () if quiet else report.notes:
        note(words)
    document: dict[str, Any] = report.to_dict()
    if found is not None:
        document["search"] = found.to_dict()
    if sharing is not None:
        document["sensitivity"] = sharing.to_dict()
    emit(document, lambda: compressed(report, found, sharing), as_json=json, quiet=quiet)


def _bound(epsilon: str, searched: dict[str, Any], sensitivity: Path | None) -> float | None:
    """Return the error bound, None for ``auto``; refuse options that would have no effect."""
    from unweight.recipe import check_epsilon

    if epsilon == AUTO:
        limit = searched["max_ppl_delta"]
        if limit is None:
            raise UsageError(
                "--epsilon auto: --max-ppl-delta is missing", hint="0.01 is hardly noticeable"
            )
        if not 0 < limit < float("inf"):
            raise UsageError(f"--max-ppl-delta {limit:g}: must be a number above 0")
        return None
    given = [name for name, value in searched.items() if value is not None]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{names}: has no effect without --epsilon auto")
    try:
        bound = check_epsilon(float(epsilon))
    except ValueError:
        raise UsageError(f"--epsilon must be a number or auto, not {epsilon!r}") from None
    if sensitivity is not None and not bound:
        raise UsageError("--sensitivity: has no effect without --epsilon")
    return bound


def _shared_out(
    options: "CompressOptions", epsilon: float, sharing: "Sharing | None"
) -> "CompressOptions":
    """Return the options for a common bound, shared out among the tensors if that is asked for."""
    bounds = sharing.bounds(epsilon) if sharing else {}
    return replace(options, epsilon=epsilon, epsilons=bounds)


def _search(
    path: Path,
    options: "CompressOptions",
    sharing: "Sharing | None",
    settings: dict[str, Any],
    progress: "Progress",
) -> "Search":
    """Find the largest bound; whatever is wrong with the settings is found first."""
    from unweight.evaluation.search import SearchRequest, search
    from unweight.evaluation.text import default_text, read_text
    from unweight.operations.compress import compress as run

    text = settings["text"]
    request = SearchRequest(
        path,
        settings["max_ppl_delta"],
        read_text(text) if text else default_text(),
        settings["model"],
        windows=settings["windows"] or 0,
        device=settings["device"] or AUTO,
        threads=options.threads,
    )

    def attempt(epsilon: float, target: Path) -> None:
        run(path, target, _shared_out(replace(options, force=False), epsilon, sharing), progress)

    return search(request, attempt, progress)
