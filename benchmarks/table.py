"""Results as Markdown tables that are readable in a terminal, too."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.measure import Growth, Spread
from benchmarks.processes import THREADS
from benchmarks.results import Results
from benchmarks.targets import Outcome
from unweight_cli.units import count


def report(results: Results) -> str:
    """Return what was measured: machine, coders, controls, processes."""
    return "\n".join(_paragraphs(results))


def targets(outcomes: Iterable[Outcome]) -> str:
    """Return the table of targets."""
    rows = []
    for outcome in outcomes:
        target = outcome.target
        sign = "≥" if target.at_least else "≤"
        missed = outcome.missed_by
        verdict = "met" if missed <= 0 else f"missed by {missed:.2f} {target.unit}"
        limit = f"{sign} {target.limit:g} {target.unit}"
        rows.append((target.name, limit, f"{outcome.value:.2f} {target.unit}", verdict))
    return _table(("target", "limit", "measured", ""), rows, numbers=(1, 2))


def _paragraphs(results: Results) -> Iterator[str]:
    machine, versions = results.machine, results.machine.versions
    yield textwrap.fill(
        f"{machine.processor}, {machine.processors} processors, {machine.kernel} kernels, load "
        f"average {machine.load:.1f} at the start; {machine.python}, unweight "
        f"{versions['unweight']}, zipnn {versions['zipnn']}, zstandard {versions['zstandard']}. "
        f"Rates are original bytes per CPU-second of one thread, without file I/O: median of "
        f"{count(results.rounds, 'round')} (least-greatest).",
        width=100,
    )
    yield ""
    yield _coders(results)
    yield ""
    yield "Growth of files that cannot shrink:"
    yield ""
    yield _controls(results.controls)
    yield ""
    yield f"Whole processes with {THREADS} threads, from file to file:"
    yield ""
    yield _processes(results)


def _coders(results: Results) -> str:
    rows, shown = [], ""
    for each in results.models:
        peer = results.model(each.data, "zipnn")
        check = each.check_rate
        rows.append(
            (
                each.data if each.data != shown else "",
                each.coder,
                f"{each.percent:.2f} %",
                _rate(each.encode_rate),
                f"{each.encode_speedup(peer):.2f}",
                f"{check.median / 1e9:.2f}" if check else "",
                _rate(each.decode_rate),
                f"{each.decode_speedup(peer):.2f}",
            )
        )
        shown = each.data
    header = (
        "data",
        "coder",
        "size",
        "encode GB/s",
        "vs zipnn",
        "check",
        "decode GB/s",
        "vs zipnn",
    )
    return _table(header, rows, numbers=range(2, len(header)))


def _controls(controls: Sequence[Growth]) -> str:
    coders = list(dict.fromkeys(each.coder for each in controls))
    percents = {(each.data, each.coder): f"{each.percent:+.4f} %" for each in controls}
    rows = [
        (data, *(percents[data, coder] for coder in coders))
        for data in dict.fromkeys(each.data for each in controls)
    ]
    return _table(("data", *coders), rows, numbers=range(1, 1 + len(coders)))


def _processes(results: Results) -> str:
    rows = [
        (
            each.tool,
            each.action,
            each.data,
            f"{each.wall_seconds:.2f} s",
            f"{each.cpu_seconds:.2f} s",
            f"{each.peak_bytes / 1e6:.0f} MB",
        )
        for each in results.processes
    ]
    return _table(
        ("tool", "command", "data", "wall", "CPU", "peak memory"), rows, numbers=(3, 4, 5)
    )


def _rate(rate: Spread) -> str:
    median, low, high = (value / 1e9 for value in rate)
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int] = ()
) -> str:
    """Return a Markdown table whose columns ``numbers`` are aligned to the right."""
    right = set(numbers)
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join(
        "-" * (width + 1) + (":" if i in right else "-") for i, width in enumerate(widths)
    )
    return "\n".join([line(header), f"|{rule}|", *map(line, rows)])
