"""Options and arguments that several commands share, spelled once."""

from pathlib import Path
from typing import Annotated

import typer

from unweight_codecs.errors import UsageError

MAX_THREADS = 256

# ``readable=False`` in all paths: typer would report a missing permission as a usage error.
Checkpoint = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        show_default=False,
        readable=False,
        help="A .safetensors or .gguf file, a model directory or a .safetensors.index.json.",
    ),
]
File = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", show_default=False, readable=False, help="A .safetensors or .gguf file."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="OUT", readable=False, help="Where to write the result."
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_THREADS,
        metavar="N",
        help="Worker threads; 0 means as many as the process may use.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", "-f", help="Replace an existing output.", show_default=False)
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing on success.", show_default=False)
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout.", show_default=False),
]
# The exception boundary looks for this flag itself, so that it also serves a line that does not
# parse; it is declared here to be accepted and shown in the help.
Debug = Annotated[
    bool, typer.Option("--debug", help="Show a traceback on errors.", show_default=False)
]


def require_exists(path: Path) -> None:
    """Raise UsageError when there is nothing at ``path``; other obstacles are for the reader."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        reason = "a link to nothing" if path.is_symlink() else "no such file or directory"
        raise UsageError(f"{path}: {reason}") from None
    except OSError:
        return


def complete_preset(incomplete: str) -> list[str]:
    """Return the presets that start with ``incomplete``, for shell completion."""
    from unweight_codecs.presets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


def examples(*lines: str) -> str:
    """Return the examples that end a command's help; the backspace keeps their line breaks."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
