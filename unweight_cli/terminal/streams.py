"""Standard streams that are closed, full or of a narrow encoding.

The program loads this before it can handle signals, so it imports nothing that takes long.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def prepare() -> None:
    """Give closed streams somewhere to go, and survive characters that an encoding lacks.

    A closed stream is replaced under its own descriptor: the next file to be opened would get that
    number, and whatever some library prints would end up in it.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif name != "stdin" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def discard(stream: "TextIO") -> None:
    """Send what ``stream`` still holds nowhere, so that it cannot fail again when Python ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def complain(line: str) -> None:
    """Write a line to stderr; where that is impossible, the exit code has to do."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def note(text: str) -> None:
    """Write to stderr what a user should know although all is well."""
    complain(f"unweight: note: {text}")


def flush() -> None:
    """Write out what is left; what cannot be written has been reported and is dropped."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            discard(stream)
