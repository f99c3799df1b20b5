"""``unweight compress``."""

from pathlib import Path
from typing import Annotated

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
    import unweight
    from unweight_cli.render.operations import compressed

    with progress_bars(quiet=quiet) as progress:
        report = unweight.compress(
            path,
            output,
            preset=preset,
            recipe=recipe,
            stages=stage or (),
            epsilon=_number_or_text(epsilon),
            sensitivity=sensitivity,
            max_ppl_delta=max_ppl_delta,
            text=text,
            model=model,
            windows=windows,
            device=device,
            threads=threads,
            force=force,
            progress=progress,
        )
    for words in () if quiet else report.notes:
        note(words)
    emit(report.to_dict(), lambda: compressed(report), as_json=json, quiet=quiet)


def _number_or_text(epsilon: str) -> float | str:
    try:
        return float(epsilon)
    except ValueError:
        return epsilon
