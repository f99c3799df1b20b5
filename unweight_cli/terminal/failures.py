"""What a failed run tells its caller: an exit code and one line, or one JSON document."""

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import typer

from unweight.units import printable
from unweight_cli.terminal.console import write
from unweight_cli.terminal.interruption import Interruption
from unweight_cli.terminal.spelling import as_options
from unweight_cli.terminal.streams import complain
from unweight_codecs.errors import ResourceError, UnweightError, UsageError

INTERNAL_EXIT = 1
INTERRUPTED_EXIT = 130

# Typer exports one class of its usage errors; the base of that class covers them all, whichever
# implementation of click the installed typer is built on.
PARSING_ERROR = cast("type[Exception]", typer.BadParameter.__bases__[0])


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed run. ``kind`` is the name of an error class of Unweight, or InternalError."""

    kind: str
    message: str
    hint: str
    exit_code: int

    @property
    def line(self) -> str:
        """The one line a person reads."""
        text = f"{self.message} ({self.hint})" if self.hint else self.message
        return f"unweight: error: {printable(text)}"

    def to_dict(self) -> dict[str, dict[str, str | int]]:
        """Return what ``--json`` prints in place of a result."""
        return {
            "error": {
                "type": self.kind,
                "message": self.message,
                "hint": self.hint,
                "exit_code": self.exit_code,
            }
        }


def explain(error: BaseException) -> Failure:
    """Return how ``error`` is reported."""
    if isinstance(error, UnweightError):
        return Failure(
            type(error).__name__,
            as_options(error.message),
            as_options(error.hint) or _hint_at_cause(error),
            error.exit_code,
        )
    if isinstance(error, PARSING_ERROR):
        return _explain_parsing(error)
    if isinstance(error, Interruption):
        return Failure("Interrupted", error.word, "", error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        return Failure("Interrupted", "interrupted", "", INTERRUPTED_EXIT)
    if isinstance(error, MemoryError):
        return Failure(
            ResourceError.__name__, "out of memory", "try fewer --threads", ResourceError.exit_code
        )
    if isinstance(error, OSError):
        return Failure(ResourceError.__name__, _describe(error), "", ResourceError.exit_code)
    return Failure(
        "InternalError",
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug in unweight; please report it with what --debug shows",
        INTERNAL_EXIT,
    )


def report(failure: Failure, *, as_json: bool) -> None:
    """Print ``failure``: the line on stderr, and the document on stdout for ``--json``."""
    complain(failure.line)
    if as_json:
        # Where stdout is full, too, the line has said what there is to say.
        with suppress(OSError):
            write(json.dumps(failure.to_dict(), indent=2) + "\n")


def _explain_parsing(error: Exception) -> Failure:
    """Turn typer's own message into one of ours: lower case, one line, its guess as the hint."""
    options = getattr(error, "possibilities", None) or ()
    text = str(error) if options else str(getattr(error, "format_message", error.__str__)())
    text, _, commands = " ".join(text.split()).partition(". Did you mean ")
    guess = commands.rstrip("?") or " or ".join(options)
    command = getattr(getattr(error, "ctx", None), "command_path", "unweight")
    return Failure(
        UsageError.__name__,
        text[:1].lower() + text[1:].rstrip("."),
        f"did you mean {guess}?" if guess else f"see '{command} --help'",
        UsageError.exit_code,
    )


def _hint_at_cause(error: UnweightError) -> str:
    """Return where to read more about what another library has raised."""
    cause = error.__cause__
    is_foreign = cause is not None and not isinstance(cause, UnweightError | OSError)
    return "--debug shows more" if is_foreign else ""


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
