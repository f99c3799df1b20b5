"""What ``tune`` measured."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from unweight.operations.tune import TuningReport
from unweight_cli.render.layout import table, title


def tuned(report: TuningReport) -> Iterator[RenderableType]:
    """Show the times of each strategy, in microseconds."""
    yield title(report.device)
    strategies = list(dict.fromkeys(name for row in report.rows for name in row.seconds))
    grid = table(("matrix",), ("batch", *strategies, "best"))
    for row in report.rows:
        grid.add_row(
            f"{row.rows} x {row.columns}",
            f"{row.batch:,}",
            *(_microseconds(row.seconds.get(name)) for name in strategies),
            row.best,
        )
    yield grid
    yield Text(_summary(report), style="dim")


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.1f}"


def _summary(report: TuningReport) -> str:
    cached = sum(row.cached for row in report.rows)
    words = "Microseconds per product, median."
    return words if not cached else f"{words} {cached} of {len(report.rows)} measured earlier."
