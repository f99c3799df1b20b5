"""``unweight bench``."""

from typing import Annotated

import typer

from unweight_cli.options import (
    Checkpoint,
    Debug,
    DecodeDevice,
    Json,
    complete_preset,
    examples,
    require_exists,
)
from unweight_cli.terminal.console import emit
from unweight_cli.terminal.progress import progress_bars
from unweight_cli.terminal.streams import note

EXAMPLES = examples(
    "unweight bench model.safetensors",
    "unweight bench model.safetensors --preset fast --preset max --repeats 5",
)


def bench(
    path: Checkpoint,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_preset,
            help="A preset to measure; repeatable. Without it: all.",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Runs to take the median of.")
    ] = 3,
    device: DecodeDevice = "cpu",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure size and speed of each preset on your own checkpoint.

    Rates are original bytes per CPU-second of one thread, in memory; nothing is written. With
    --device cuda, decoding there is measured as well, by the clock and with all copies.
    """
    require_exists(path)
    import unweight
    from unweight_cli.render.benchmark import benchmark
    from unweight_codecs.presets import PRESETS

    with progress_bars() as progress:
        report = unweight.bench(
            path,
            presets=preset or tuple(PRESETS),
            repeats=repeats,
            device=device,
            progress=progress,
            note=note,
        )
    emit(report.to_dict(), lambda: benchmark(report), as_json=json)
