"""The two layouts every page is made of: a table and a list of facts."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unweight_cli.units import printable

MIN_FIRST_WIDTH = 8
INDENT = 2


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
    grid.add_column(first, overflow="fold", min_width=MIN_FIRST_WIDTH)
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
