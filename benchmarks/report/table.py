"""Results as Markdown: machine, tables of all sections, targets."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from benchmarks.cpu.measure import Growth
from benchmarks.cpu.processes import ProcessFigures
from benchmarks.report.bounded_table import bounded_table
from benchmarks.report.gguf_table import gguf_table
from benchmarks.report.markdown import blank_repeats, rate, table
from benchmarks.report.results import Results, Section
from benchmarks.report.targets import Outcome
from unweight.units import count


def report(results: Results) -> str:
    """Return what was measured: machine, coders, controls, processes."""
    parts = [_machine(results)]
    for name, section in results.sections.items():
        parts += _SECTIONS[name](section)
    return "\n\n".join(parts)


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
    return table(("target", "limit", "measured", ""), rows, numbers=(1, 2))


def _machine(results: Results) -> str:
    machine, versions = results.machine, results.machine.versions
    packages = ", ".join(
        f"{name} {versions[name]}" for name in ("unweight", "zipnn", "zstandard", "gguf")
    )
    return textwrap.fill(
        f"{machine.processor}, {count(machine.processors, 'processor')}, {machine.kernel} kernels, "
        f"load average {machine.load:.1f} at the start; {machine.python}, {packages}. Rates are "
        f"original bytes per CPU-second of one thread, without file I/O: median of "
        f"{count(results.rounds, 'round')} (least-greatest).",
        width=100,
    )


def _safetensors(section: Section) -> Iterator[str]:
    yield _beside_zipnn(section)
    yield "Growth of files that cannot shrink:"
    yield _controls(section.controls)
    yield from _processes(section.processes)


def _gguf(section: Section) -> Iterator[str]:
    yield "GGUF: a published model in Q4_1, and the same weights in other types:"
    yield gguf_table(section)
    for each in section.quoted:
        yield textwrap.fill(
            f"{each.coder}: quoted as its authors state it for the file of {each.data}, not "
            "measured here. xz and zstd get the whole file, in one round.",
            width=100,
        )
    yield from _processes(section.processes)


def _bounded(section: Section) -> Iterator[str]:
    yield "Within an error bound, at the weight error of the block quantisations of ggml:"
    yield bounded_table(section)
    yield from _processes(section.processes)


_SECTIONS: Final[dict[str, Callable[[Section], Iterator[str]]]] = {
    "safetensors": _safetensors,
    "bounded": _bounded,
    "gguf": _gguf,
}


def _beside_zipnn(section: Section) -> str:
    rows = []
    names = blank_repeats(each.data for each in section.models)
    for name, each in zip(names, section.models, strict=True):
        peer = section.model(each.data, "zipnn")
        check = each.check_rate
        rows.append(
            (
                name,
                each.coder,
                f"{each.percent:.2f} %",
                rate(each.encode_rate, 1e9, 2),
                f"{each.encode_speedup(peer):.2f}",
                f"{check.median / 1e9:.2f}" if check else "",
                rate(each.decode_rate, 1e9, 2),
                f"{each.decode_speedup(peer):.2f}",
            )
        )
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
    return table(header, rows, numbers=range(2, len(header)))


def _controls(controls: Sequence[Growth]) -> str:
    coders = list(dict.fromkeys(each.coder for each in controls))
    percents = {(each.data, each.coder): f"{each.percent:+.4f} %" for each in controls}
    rows = [
        (data, *(percents[data, coder] for coder in coders))
        for data in dict.fromkeys(each.data for each in controls)
    ]
    return table(("data", *coders), rows, numbers=range(1, 1 + len(coders)))


def _processes(figures: Sequence[ProcessFigures]) -> Iterator[str]:
    rows = [
        (
            each.tool,
            each.action,
            each.data,
            f"{each.wall_seconds:.2f} s",
            f"{each.cpu_seconds:.2f} s",
            f"{each.peak_bytes / 1e6:.0f} MB",
        )
        for each in figures
    ]
    threads = max(each.threads for each in figures)
    yield f"Whole processes with {count(threads, 'thread')}, from file to file:"
    yield table(("tool", "command", "data", "wall", "CPU", "peak memory"), rows, numbers=(3, 4, 5))
