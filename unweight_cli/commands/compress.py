"""``unweight compress``."""

from pathlib import Path
from typing import Annotated

import typer

from unweight_cli.console import emit
from unweight_cli.options import (
    Checkpoint,
    Debug,
    Force,
    Json,
    Output,
    Quiet,
    Threads,
    complete_preset,
    examples,
    input_path,
    require_exists,
)
from unweight_cli.progress import progress_bars

EXAMPLES = examples(
    "unweight compress model.safetensors",
    "unweight compress model.gguf --threads 4",
    "unweight compress checkpoint/ -o checkpoint.unweight --preset max",
    "unweight compress model.safetensors --stage grid:mantissa_bits=1",
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
            help="fast, default or max: how much time to spend on size.",
        ),
    ] = "default",
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
    """Compress a checkpoint, bit-exactly.

    Every tensor is decoded again and compared before the output gets its name. model.safetensors
    becomes model.unweight.safetensors, model.gguf becomes model.unweight.gguf, a directory DIR
    becomes DIR.unweight.
    """
    require_exists(path)
    if recipe is not None:
        require_exists(recipe)
    from unweight_cli.render.operations import compressed
    from unweight_codecs.operations.compress import CompressOptions
    from unweight_codecs.operations.compress import compress as run

    options = CompressOptions(
        preset=preset, recipe=recipe, stages=tuple(stage or ()), threads=threads, force=force
    )
    with progress_bars(quiet=quiet) as progress:
        report = run(path, output, options, progress)
    emit(report.to_dict(), lambda: compressed(report), as_json=json, quiet=quiet)
