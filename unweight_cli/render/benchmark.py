"""What ``bench`` measured."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from unweight.operations.bench import BenchReport
from unweight.units import count, percent, rate, size
from unweight_cli.render.layout import table, title


def benchmark(report: BenchReport) -> Iterator[RenderableType]:
    """Show size and rates of each preset."""
    yield title(report.source)
    device = (report.device,) if report.device else ()
    grid = table(("preset",), ("before", "after", "ratio", "encode", "check", "decode", *device))
    for row in report.rows:
        grid.add_row(
            row.preset,
            size(row.source_bytes),
            size(row.coded_bytes),
            percent(row.coded_bytes, row.source_bytes, decimals=2),
            rate(row.source_bytes, row.encode_cpu_seconds),
            rate(row.source_bytes, row.check_cpu_seconds),
            rate(row.source_bytes, row.decode_cpu_seconds),
            *(rate(row.device_bytes, row.device_seconds) for _ in device),
        )
    yield grid
    if device:
        yield Text(
            f"{report.device}: words per second of the clock, from and to the memory of the host.",
            style="dim",
        )
    yield Text(
        f"Original bytes per CPU-second of one thread, in memory; median of "
        f"{count(report.repeats, 'run')}; {report.kernel} kernels.",
        style="dim",
    )
