"""The two layouts every page is made of: a table and a list of facts."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unweight.units import printable, shortened

MIN_NAME_WIDTH = 12
MAX_NAME = 320  # more than names have; a hostile one fills pages
INDENT = 2


class Name:
    """A dotted name from a file; where it does not fit on a line, it goes on after a dot."""

    def __init__(self, text: str) -> None:
        """Show ``text``, whatever characters it holds."""
        self.text = shortened(text, MAX_NAME)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Ask for one line, but make do with less."""
        length = cell_len(self.text)
        return Measurement(min(length, MIN_NAME_WIDTH), length)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give as many lines as the width asks for, all but the first indented."""
        rest, width = self.text, options.max_width
        while cell_len(rest) > width:
            cut = rest.rfind(".", INDENT + 1, width) + 1 or width
            yield Text(rest[:cut])
            rest = " " * INDENT + rest[cut:]
        yield Text(rest)


def table(left: Sequence[str], right: Sequence[str]) -> Table:
    """Return an empty table: columns of text (``left``), then of numbers (``right``).

    Where there is not enough room, the first column gets narrower and its cells take more lines.
    """
    grid = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    first, *rest = left
    grid.add_column(first, overflow="fold")
    for name in rest:
        grid.add_column(name, no_wrap=True)
    for name in right:
        grid.add_column(name, justify="right", no_wrap=True)
    return grid


def facts(rows: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """Return (label, value) pairs as two indented columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, value)
    return Padding(grid, (0, 0, 0, INDENT))


def title(text: str, detail: str = "") -> Text:
    """Return the first line of a page: ``text`` in bold, then ``detail``."""
    line = Text(printable(text), style="bold", overflow="fold")
    return line.append(f"  {printable(detail)}", style="not bold") if detail else line
