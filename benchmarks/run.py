"""Measure, print, and on request write the figures to a file or into the README."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import table
from benchmarks.data import controls, real_models
from benchmarks.measure import Coder, Growth, Measurement, measure
from benchmarks.peers import UnweightCoder, ZipnnCoder, ZstdCoder
from benchmarks.processes import ProcessFigures, commands, large_commands, run_commands
from benchmarks.results import Results, describe_machine
from benchmarks.targets import outcomes
from unweight_codecs.errors import UnweightError, UsageError
from unweight_codecs.presets import DEFAULT, PRESETS

README: Final = Path(__file__).resolve().parent.parent / "README.md"
BEGIN: Final = "<!-- benchmark:begin -->"
END: Final = "<!-- benchmark:end -->"
PROCESS_MODEL: Final = "MiniLM BF16"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.readme:
            _split_readme()  # refuse before minutes of measuring, not after
        results = run(options.rounds, large=options.large)
        found = list(outcomes(results))
        text = table.report(results)
        print(f"{text}\n\nTargets:\n\n{table.targets(found)}")
        if options.json:
            figures = results.to_dict() | {"targets": [each.to_dict() for each in found]}
            options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        if options.readme:
            before, after = _split_readme()
            README.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    except UnweightError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run(rounds: int, *, large: bool) -> Results:
    """Measure everything, in a temporary folder."""
    machine = describe_machine()
    own = [UnweightCoder(name) for name in PRESETS]
    joined = UnweightCoder(DEFAULT, joined=True)
    coders: list[Coder] = [*own, joined, ZipnnCoder(), ZstdCoder(3)]
    with tempfile.TemporaryDirectory(prefix="unweight-bench-") as name:
        folder = Path(name)
        models: list[Measurement] = []
        processes: list[ProcessFigures] = []
        for data in real_models(folder):
            _tell(data.name)
            models += measure(data, coders, rounds)
            if data.name == PROCESS_MODEL:
                _tell(f"whole processes on {data.name}")
                processes += run_commands(commands(data, folder), rounds)
        growth: list[Growth] = []
        for data in controls(folder):
            _tell(data.name)
            size = data.path.stat().st_size
            growth += [
                Growth(data.name, each.name, size, each.file_bytes(data) or 0) for each in own
            ]
        if large:
            _tell("whole processes on a large file")
            processes += run_commands(large_commands(folder), 1)
    return Results(machine, rounds, tuple(models), tuple(growth), tuple(processes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Sizes and rates of Unweight beside its peers."
    )
    parser.add_argument("--rounds", type=_positive, default=5, help="repetitions (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")
    parser.add_argument("--readme", action="store_true", help="put the tables into README.md")
    parser.add_argument("--large", action="store_true", help="also a 2 GiB file, for peak memory")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _split_readme() -> tuple[str, str]:
    """Return what stands before and after the tables in the README."""
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"README.md has no place for the tables: {BEGIN} and then {END}")
    return before, after


def _tell(what: str) -> None:
    print(f"measuring {what} ...", file=sys.stderr, flush=True)
