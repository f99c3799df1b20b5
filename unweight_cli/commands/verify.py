"""``unweight verify``."""

from pathlib import Path
from typing import Annotated

import typer

from unweight_cli.console import emit
from unweight_cli.options import (
    Checkpoint,
    Debug,
    Json,
    Quiet,
    Threads,
    examples,
    input_path,
    require_exists,
)
from unweight_cli.progress import progress_bars

EXAMPLES = examples(
    "unweight verify model.unweight.safetensors",
    "unweight verify model.unweight.safetensors --against model.safetensors",
    "unweight verify checkpoint.unweight/ --quiet && rsync -a checkpoint.unweight/ host:models/",
)


def verify(
    path: Checkpoint,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="ORIGINAL", parser=input_path, help="Also compare with this file or directory."
        ),
    ] = None,
    threads: Threads = 0,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check that a checkpoint restores exactly, without writing it.

    Everything is decoded and every checksum is compared, up to the SHA-256 of the original file.
    Exit code 4 means that some bytes are not what they must be.
    """
    require_exists(path)
    if against is not None:
        require_exists(against)
    from unweight_cli.render.operations import verified
    from unweight_codecs.operations.verify import verify as run

    with progress_bars(quiet=quiet) as progress:
        report = run(path, against, threads=threads, progress=progress)
    emit(report.to_dict(), lambda: verified(report), as_json=json, quiet=quiet)
