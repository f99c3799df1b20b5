"""What ``inspect`` says about a file, its tensors and the stages of one tensor."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from unweight.operations.report import HeaderReport, StagesReport, TensorReport
from unweight.operations.tensor_rows import STORED
from unweight.units import bits, count, percent, printable, shortened, size
from unweight_cli.render.histogram import columns
from unweight_cli.render.layout import INDENT, Name, facts, table, title

MAX_LABEL = 60
MAX_PIPELINES = 8
CHART_HEIGHT = 6
CHART_WIDTH = 72


def header(report: HeaderReport) -> Iterator[RenderableType]:
    """Show what the file is, where it came from and what codes it."""
    yield title(report.path)
    stored = sum(tensor.pipeline == STORED for tensor in report.tensors)
    rows: list[tuple[str, RenderableType]] = [
        ("container", report.container),
        ("size", f"{size(report.file_bytes)} ({report.file_bytes:,} bytes)"),
        ("header", size(report.header_bytes)),
    ]
    if not report.format_version:
        rows.append(("tensors", f"{len(report.tensors):,}"))
        rows.append(("compressed", "no: not written by Unweight"))
    else:
        rows += [
            ("tensors", f"{len(report.tensors):,}, {stored:,} of them stored unchanged"),
            (
                "format",
                f"version {report.format_version}.{report.format_minor}, "
                f"written by {shortened(report.generator)}",
            ),
            ("mode", _mode(report)),
            ("original", f"{size(report.source_bytes)} ({report.source_bytes:,} bytes)"),
            ("ratio", percent(report.file_bytes, report.source_bytes)),
            ("SHA-256", report.source_sha256),
        ]
        if report.restored_sha256 != report.source_sha256:
            rows.append(("restored", f"SHA-256 {report.restored_sha256}"))
    yield facts(rows)
    yield from _pipelines(report)
    if report.metadata:
        yield Text("\nmetadata", style="bold")
        yield facts(
            (shortened(key, MAX_LABEL), shortened(value))
            for key, value in sorted(report.metadata.items())
        )


def tensors(listed: Sequence[TensorReport], total: int) -> Iterator[RenderableType]:
    """Show ``listed`` tensors out of ``total`` with their sizes in the file."""
    numbers = ["before", "after", "ratio"]
    bounded = any(tensor.epsilon for tensor in listed)
    grid = table(("tensor", "dtype", "shape"), (*numbers, "error") if bounded else numbers)
    for tensor in listed:
        error = f"{tensor.error:.3g}" if tensor.epsilon else "exact"
        grid.add_row(
            Name(tensor.name),
            tensor.dtype,
            shape(tensor),
            size(tensor.source_bytes),
            size(tensor.coded_bytes),
            STORED
            if tensor.pipeline == STORED
            else percent(tensor.coded_bytes, tensor.source_bytes),
            *([error] if bounded else []),
        )
    yield grid
    if len(listed) < total:
        yield Text(f"{len(listed):,} of {count(total, 'tensor')}; --limit 0 shows all", style="dim")


def stages(report: StagesReport) -> Iterator[RenderableType]:
    """Show what each stage did to one tensor, the bits it took, and its symbols."""
    tensor = report.tensor
    yield title(shortened(tensor.name), f"{tensor.dtype} {shape(tensor)} in {report.path}")
    yield facts(
        (
            ("size", f"{size(tensor.source_bytes)} → {size(tensor.coded_bytes)}"),
            ("ratio", percent(tensor.coded_bytes, tensor.source_bytes, decimals=2)),
            ("bits each", _bits_each(report)),
            ("overhead", f"{size(report.overhead_bytes)} for tables, directory and checksums"),
        )
    )
    for stage in report.stages:
        settings = _settings(stage.configuration)
        yield Text(f"\n{shortened(stage.name, MAX_LABEL)}", style="bold").append(
            f"  {settings}", style="not bold dim"
        )
        yield facts(
            (shortened(label, MAX_LABEL), shortened(str(value)))
            for label, value in stage.facts.items()
        )
    if report.streams:
        yield _streams(report)
    yield from _chart(report)


def shape(tensor: TensorReport) -> str:
    """Return the shape as people write it: ``"4096x4096"``, ``"scalar"``."""
    return "x".join(str(extent) for extent in tensor.shape) or "scalar"


def _mode(report: HeaderReport) -> str:
    return report.mode if not report.epsilon else f"{report.mode}, ε = {report.epsilon:g}"


def _bits_each(report: StagesReport) -> str:
    return (
        f"{bits(report.bits_per_element_source)} → {bits(report.bits_per_element_coded)}, "
        f"order-0 entropy {bits(report.bits_per_element_bound)}"
    )


def _pipelines(report: HeaderReport) -> Iterator[RenderableType]:
    for pipeline in report.pipelines[:MAX_PIPELINES]:
        yield Text(f"\npipeline {shortened(str(pipeline['name']), MAX_LABEL)}", style="bold")
        yield facts(
            (shortened(str(stage["name"]), MAX_LABEL), _settings(stage["configuration"]) or "-")
            for stage in pipeline["stages"]
        )
    more = len(report.pipelines) - MAX_PIPELINES
    if more > 0:
        yield Text(f"\nand {count(more, 'more pipeline')}; --json shows all", style="dim")


def _settings(configuration: Mapping[str, object]) -> str:
    return shortened(", ".join(f"{key}={value}" for key, value in configuration.items()))


def _streams(report: StagesReport) -> RenderableType:
    grid = table(("stream", "coders"), ("bits", "values", "entropy", "coded", "size"))
    for stream in report.streams:
        grid.add_row(
            shortened(stream.name, MAX_LABEL),
            ", ".join(f"{coder} {chunks}" for coder, chunks in stream.coders.items()),
            str(stream.bits),
            f"{stream.values:,}",
            bits(stream.entropy_bits),
            bits(stream.coded_bits),
            size(stream.coded_bytes),
        )
    return Padding(grid, (1, 0, 0, INDENT))


def _chart(report: StagesReport) -> Iterator[RenderableType]:
    counts = [number for _, number in report.histogram]
    lines = columns(counts, height=CHART_HEIGHT, width=CHART_WIDTH)
    if not lines:
        return
    first, last = report.histogram[0][0], report.histogram[-1][0]
    peak = max(report.histogram, key=lambda bar: bar[1])
    axis = f"{printable(first)}{printable(last).rjust(len(lines[0]) - len(printable(first)))}"
    yield Text("\nsymbols", style="bold").append(
        f"  most frequent: {printable(peak[0])} ({percent(peak[1], sum(counts))})",
        style="not bold dim",
    )
    chart = Group(
        *(Text(line, style="cyan", no_wrap=True) for line in lines), Text(axis, style="dim")
    )
    yield Padding(chart, (0, 0, 0, INDENT))
