"""``unweight profile``."""

from pathlib import Path
from typing import Annotated

import typer

from unweight_cli.options import (
    Debug,
    Force,
    Json,
    ModelDirectory,
    Quiet,
    SafetensorsCheckpoint,
    Threads,
    examples,
    input_path,
    output_path,
    require_exists,
)
from unweight_cli.terminal.console import emit
from unweight_cli.terminal.progress import progress_bars

EXAMPLES = examples(
    "unweight profile checkpoint/ --calibration text.txt",
    "unweight profile checkpoint/ --calibration text.txt --windows 64 -o sensitivity.json",
)


def profile(
    path: SafetensorsCheckpoint,
    calibration: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            parser=input_path,
            show_default=False,
            help="UTF-8 text like what the model is for, other than the one it is judged on.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="OUT", parser=output_path, help="Where to write the result."
        ),
    ] = Path("sensitivity.json"),
    model: ModelDirectory = None,
    context: Annotated[int, typer.Option(min=8, metavar="N", help="Tokens in a window.")] = 512,
    windows: Annotated[
        int, typer.Option(min=0, metavar="N", help="Windows to use; 0 means the whole text.")
    ] = 16,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")
    ] = "auto",
    threads: Threads = 0,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure how much each tensor of a model matters.

    The result is a file that says, for each tensor, how much a change of its weights changes what
    the model predicts: the diagonal of its Fisher information, from gradients on a text. This needs
    torch and transformers: pip install 'unweight[eval]'.
    """
    for given in (path, calibration, *((model,) if model else ())):
        require_exists(given)
    import unweight
    from unweight_cli.render.evaluation import sensitivity

    with progress_bars(quiet=quiet) as progress:
        report = unweight.evaluation.profile(
            path,
            calibration,
            output,
            model=model,
            context=context,
            windows=windows,
            device=device,
            threads=threads,
            force=force,
            progress=progress,
        )
    emit(report.to_dict(), lambda: sensitivity(report, str(output)), as_json=json, quiet=quiet)
