"""What ``compress``, ``decompress`` and ``verify`` say when they are done."""

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unweight.evaluation.compression import CompressReport
from unweight.operations.report import FileReport, OperationReport
from unweight.operations.tensor_roles import KINDS, kind_of
from unweight.operations.tensor_rows import STORED
from unweight.units import count, duration, percent, printable, rate, shortened, size
from unweight_cli.render.checks import checked
from unweight_cli.render.layout import INDENT, facts, table, title
from unweight_codecs.accelerators import CPU

if TYPE_CHECKING:
    from unweight.evaluation.search import SearchReport
    from unweight.evaluation.sensitivity.sharing import Sharing

MAX_NAMED = 3  # tensors that a line lists


def compressed(report: OperationReport) -> Iterator[RenderableType]:
    """Show where the bytes went, how long it took, and how to get the original back.

    Of a ``CompressReport`` also how the error bound was found and shared out.
    """
    yield title(f"{report.source} → {report.target}")
    yield Padding(_sizes(report), (0, 0, 0, INDENT))
    change = 1 - report.target_bytes / report.source_bytes if report.source_bytes else 0.0
    yield Text("")
    rows: list[tuple[str, RenderableType]] = [
        ("result", Text(f"{abs(100 * change):.1f} % {'smaller' if change >= 0 else 'larger'}")),
        ("checked", Text(checked(report), style="green")),
        ("time", _time(report)),
        ("restore", Text(f"unweight decompress {_argument(report.target)}")),
    ]
    if isinstance(report, CompressReport) and report.sensitivity is not None:
        rows.insert(1, ("sensitivity", _shared(report.sensitivity)))
    if isinstance(report, CompressReport) and report.search is not None:
        rows[1:1] = _searched(report.search, report)
    yield facts(rows)


def _searched(
    search: "SearchReport", report: OperationReport
) -> Iterator[tuple[str, RenderableType]]:
    best = search.best
    yield (
        "perplexity",
        f"{best.perplexity.value:.4f}, changed by {best.difference.value:+.4f} "
        f"± {best.difference.standard_error:.4f}, allowed {search.max_delta:g}",
    )
    yield (
        "epsilon",
        f"{best.epsilon:.4g}, found with {count(len(search.attempts), 'evaluation')}",
    )
    if report.exact:
        yield "changed", Text("nothing: every tensor comes back exactly", style="yellow")


def _shared(sharing: "Sharing") -> RenderableType:
    path = shortened(str(sharing.sensitivity.path))
    missing, without_gradient = sharing.missing, sharing.without_gradient
    matrices = count(len(sharing.matrices), "matrix", "matrices")
    known = len(sharing.matrices) - len(missing) - len(without_gradient)
    exceptions = []
    if missing:
        exceptions.append(f"it lacks {_named(missing)}")
    if without_gradient:
        owners = count(len(without_gradient), "matrix", "matrices")
        exceptions.append(f"{owners} had no gradient ({_named(without_gradient)})")
    if not exceptions:
        return f"{path}, for all of {matrices}"
    return Text(
        f"{path}, for {known:,} of {matrices}; {', and '.join(exceptions)}: the common bound there",
        style="yellow",
    )


def _named(names: tuple[str, ...]) -> str:
    """Return the first names, and how many there are besides."""
    shown = ", ".join(shortened(name) for name in names[:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown


def decompressed(report: OperationReport) -> Iterator[RenderableType]:
    """Show what was restored and how it was checked."""
    yield title(f"{report.source} → {report.target}")
    rows: list[tuple[str, RenderableType]] = [
        ("size", f"{size(report.source_bytes)} → {size(report.target_bytes)}"),
        ("checked", Text(checked(report), style="green")),
        ("time", _time(report)),
    ]
    yield from _with_digests(rows, report.files)


def verified(report: OperationReport) -> Iterator[RenderableType]:
    """Show what was checked."""
    yield title(report.source, "intact")
    tensors = [tensor for file in report.files for tensor in file.tensors]
    coded = sum(tensor.pipeline != STORED for tensor in tensors)
    rows: list[tuple[str, RenderableType]] = [
        ("checked", Text(checked(report), style="green")),
        ("tensors", f"{len(tensors):,}, {coded:,} of them coded"),
        ("time", _time(report)),
    ]
    if report.target:
        rows.insert(1, ("against", Text(printable(report.target))))
    yield from _with_digests(rows, report.files)


def _argument(path: str) -> str:
    """Return a path as it is typed in a shell; a leading dash must not make it an option."""
    return shlex.quote(printable(f"./{path}" if path.startswith("-") else path))


def _sizes(report: OperationReport) -> Table:
    """Return sizes before and after by kind and dtype; the rows add up to the total."""
    tensors: Counter[tuple[str, str]] = Counter()
    before: Counter[tuple[str, str]] = Counter()
    after: Counter[tuple[str, str]] = Counter()
    for file in report.files:
        for tensor in file.tensors:
            key = kind_of(tensor.name), tensor.dtype
            tensors[key] += 1
            before[key] += tensor.source_bytes
            after[key] += tensor.coded_bytes

    grid = table(("kind", "dtype"), ("tensors", "before", "after", "ratio"))
    for key in sorted(tensors, key=lambda key: (KINDS.index(key[0]), -before[key], key[1])):
        _add(grid, *key, f"{tensors[key]:,}", before[key], after[key])
    headers_before = sum(file.source_bytes for file in report.files) - before.total()
    headers_after = sum(file.target_bytes for file in report.files) - after.total()
    _add(grid, "header", "", "", headers_before, headers_after)
    if report.carried_files:
        carried = report.carried_bytes
        _add(grid, "other files", "", "", carried, carried)
    grid.add_section()
    _add(
        grid, "total", "", f"{tensors.total():,}", report.source_bytes, report.target_bytes, "bold"
    )
    return grid


def _add(
    grid: Table, kind: str, dtype: str, tensors: str, before: int, after: int, style: str = ""
) -> None:
    grid.add_row(
        kind, dtype, tensors, size(before), size(after), percent(after, before), style=style
    )


def _time(report: OperationReport) -> str:
    original = report.source_bytes if report.operation == "compress" else report.target_bytes
    return (
        f"{duration(report.seconds)}, {rate(original, report.seconds)}, "
        f"{count(report.threads, 'thread')}, {_place(report)}"
    )


def _place(report: OperationReport) -> str:
    return f"{report.kernel} kernels" if report.device == CPU else report.device


def _with_digests(
    rows: list[tuple[str, RenderableType]], files: tuple[FileReport, ...]
) -> Iterator[RenderableType]:
    """Give the facts and the SHA-256 of the restored file, or its start for each of several."""
    if len(files) == 1:
        rows.append(("SHA-256", files[0].restored_sha256))
        if files[0].restored_sha256 != files[0].source_sha256:
            rows.append(("original", f"SHA-256 {files[0].source_sha256}"))
        yield facts(rows)
    else:
        yield facts(rows)
        yield Text("\nSHA-256", style="bold")
        yield facts((_base_name(file.source), f"{file.restored_sha256[:16]}…") for file in files)


def _base_name(path: str) -> str:
    return printable(Path(path).name)
