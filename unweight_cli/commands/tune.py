"""``unweight tune``."""

from typing import Annotated

import typer

from unweight_cli.options import Checkpoint, Debug, Json, TuneDevice, examples, require_exists
from unweight_cli.terminal.console import emit
from unweight_cli.terminal.streams import note
from unweight_codecs.errors import UsageError, quoted

EXAMPLES = examples(
    "unweight tune model.safetensors",
    "unweight tune checkpoint.unweight/ --batch 1,8 --device cuda:1",
)


def batches_of(text: str) -> tuple[int, ...]:
    """Return the numbers in a list like ``1,4,16``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(f"--batch {quoted(text)}: numbers, such as 1,4,16")
    return tuple(map(int, parts))


def tune(
    path: Checkpoint,
    batch: Annotated[
        str,
        typer.Option(
            metavar="N,N,…",
            help="Rows of activations to measure with, at most 1024; rounded up to a power of two.",
        ),
    ] = "1,4,16,64",
    device: TuneDevice = "auto",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure on a GPU how it multiplies best with the matrices of a model, and remember it.

    A BF16 matrix can stay plain, or take three quarters of the memory as a palette, which a fused
    kernel multiplies with directly or which is expanded first. Which is fastest depends on device,
    shape and batch. The results are kept in the user's cache, for programs that load palettes.
    """
    require_exists(path)
    from unweight.operations.tune import tune as run
    from unweight_cli.render.tuning import tuned

    report = run(path, batches_of(batch), device)
    for text in report.notes:
        note(text)
    emit(report.to_dict(), lambda: tuned(report), as_json=json)
