"""Where results go: tables for a person, one JSON document for a program, or nowhere."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from unweight_cli.terminal.streams import discard

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# In a pipe or a file there is no edge to keep within: nothing is wrapped or cut there.
PIPE_WIDTH = 10_000


def emit(
    document: Mapping[str, Any],
    view: "Callable[[], Iterable[RenderableType]]",
    *,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Print a result on stdout.

    Args:
        document: The result as JSON-ready data.
        view: Returns the result as renderables, top to bottom; called only for a person.
        as_json: Print ``document``, whatever ``quiet`` says.
        quiet: Print nothing.
    """
    if as_json:
        # ASCII only, so that no locale and no undecodable file name can spoil the document.
        write(json.dumps(document, indent=2) + "\n")
    elif not quiet:
        write(_rendered(view()))


def write(text: str) -> None:
    """Write ``text`` to stdout at once; a reader who has seen enough (``| head``) is no error."""
    try:
        sys.stdout.write(text)
        # Flushed here, where a full disk is still reported like any other error.
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError:
        discard(sys.stdout)
        raise


def open_console(stream: TextIO) -> "Console":
    """Return a rich console on ``stream`` that takes every string literally.

    Colours appear on a terminal only, and not where ``NO_COLOR`` is set or the terminal is dumb.
    """
    from rich.console import Console

    return Console(
        file=stream,
        width=None if stream.isatty() else PIPE_WIDTH,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        force_terminal=stream.isatty(),
        markup=False,
        highlight=False,
        emoji=False,
    )


def _rendered(parts: "Iterable[RenderableType]") -> str:
    console = open_console(sys.stdout)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    text = captured.get()
    if console.is_terminal:
        return text
    # Tables are padded to their width, which is noise where no one sees the edge.
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
