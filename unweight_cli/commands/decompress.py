"""``unweight decompress``."""

from unweight_cli.options import (
    Checkpoint,
    Debug,
    DecodeDevice,
    Force,
    Json,
    Output,
    Quiet,
    Threads,
    examples,
    require_exists,
)
from unweight_cli.terminal.console import emit
from unweight_cli.terminal.progress import progress_bars
from unweight_cli.terminal.streams import note

EXAMPLES = examples(
    "unweight decompress model.unweight.safetensors",
    "unweight decompress model.unweight.gguf",
    "unweight decompress checkpoint.unweight/ -o checkpoint",
)


def decompress(
    path: Checkpoint,
    output: Output = None,
    device: DecodeDevice = "cpu",
    threads: Threads = 0,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Restore the original file, byte for byte, or what was kept within an error bound.

    Every checksum and the SHA-256 of the whole file are checked before the output gets its name.
    model.unweight.safetensors becomes model.safetensors, a directory DIR.unweight becomes DIR.
    """
    require_exists(path)
    import unweight
    from unweight_cli.render.operations import decompressed
    from unweight_codecs.accelerators import no_note

    with progress_bars(quiet=quiet) as progress:
        report = unweight.decompress(
            path,
            output,
            device=device,
            threads=threads,
            force=force,
            progress=progress,
            note=no_note if quiet else note,
        )
    emit(report.to_dict(), lambda: decompressed(report), as_json=json, quiet=quiet)
