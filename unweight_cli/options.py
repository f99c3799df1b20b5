"""Options and arguments that several commands share, spelled once."""

from pathlib import Path
from typing import Annotated

import typer

from unweight_codecs.errors import UsageError

MAX_THREADS = 256


def input_path(text: str) -> Path:
    """Return the path that an argument gives; an empty one is not the current directory."""
    if not text:
        raise UsageError("a path is empty", hint="is a variable of the shell unset?")
    return Path(text)


def output_path(text: str) -> Path:
    """Return the path that ``--output`` gives."""
    if text == "-":
        raise UsageError(
            "-o -: the result cannot go to stdout, since it is checked before it appears",
            hint="name a file; ./- is one called '-'",
        )
    return input_path(text)


# Parsers of our own, since typer's would report a missing permission as a usage error, too.
Checkpoint = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        show_default=False,
        parser=input_path,
        help="A .safetensors or .gguf file, a model directory or a .safetensors.index.json.",
    ),
]
SafetensorsCheckpoint = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        show_default=False,
        parser=input_path,
        help="A .safetensors file, a model directory or a .safetensors.index.json; not GGUF.",
    ),
]
File = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        show_default=False,
        parser=input_path,
        help="A .safetensors or .gguf file.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="OUT", parser=output_path, help="Where to write the result."
    ),
]
EvaluationText = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", parser=input_path, help="UTF-8 text to measure on; one is built in."
    ),
]
ModelDirectory = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        parser=input_path,
        help="Where config.json and tokenizer are, if not in or beside PATH.",
    ),
]
Context = Annotated[
    int | None, typer.Option(min=8, metavar="N", help="Tokens in a window; 512 unless given.")
]
Windows = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Windows to measure; all unless given."),
]
_DEVICES = "cpu, cuda, cuda:N, or auto for a device if there is one"
ModelDevice = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="NAME", help="cpu, cuda or cuda:N; the best there is unless given."
    ),
]
DecodeDevice = Annotated[
    str, typer.Option("--device", metavar="NAME", help=f"What decodes: {_DEVICES}.")
]
VerifyDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help=f"What decodes, compares and measures: {_DEVICES}. Unless given, cpu, and auto for "
        "the model.",
    ),
]
TuneDevice = Annotated[
    str, typer.Option("--device", metavar="NAME", help="What to tune: cuda, cuda:N, or auto.")
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


def require_file(path: Path) -> None:
    """Raise UsageError unless there is something other than a directory at ``path``."""
    require_exists(path)
    if path.is_dir():
        raise UsageError(f"{path}: is a directory", hint=_name_one_inside(path))


def _name_one_inside(folder: Path) -> str:
    from unweight.containers.registry import model_suffixes

    try:
        models = [path for path in folder.iterdir() if path.suffix.lower() in model_suffixes()]
    except OSError:
        models = []
    return f"name a file inside it, like {min(models)}" if models else "name a model file"


def complete_preset(incomplete: str) -> list[str]:
    """Return the presets that start with ``incomplete``, for shell completion."""
    from unweight_codecs.presets import PRESETS, STORED

    return [name for name in (*PRESETS, STORED) if name.startswith(incomplete)]


def examples(*lines: str) -> str:
    """Return the examples that end a command's help; the backspace keeps their line breaks."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
