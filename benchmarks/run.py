"""Measure, print, and on request write the figures to a file or into the README."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.report import table
from benchmarks.report.results import Results, describe_machine
from benchmarks.report.sections import SECTIONS, Plan
from benchmarks.report.targets import outcomes
from unweight_codecs.errors import UnweightError, UsageError

README: Final = Path(__file__).resolve().parent.parent / "README.md"
BEGIN: Final = "<!-- benchmark:begin -->"
END: Final = "<!-- benchmark:end -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.readme and options.only:
            raise UsageError("--readme needs every table: leave out --only")
        if options.readme:
            _split_readme()  # refuse before minutes of measuring, not after
        chosen = [options.only] if options.only else list(SECTIONS)
        results = run(chosen, options.rounds, large=options.large)
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


def run(chosen: Sequence[str], rounds: int, *, large: bool) -> Results:
    """Measure the sections that are ``chosen``, in a temporary folder."""
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="unweight-bench-") as folder:
        plan = Plan(rounds, large, Path(folder))
        sections = {name: SECTIONS[name](plan) for name in chosen}
    return Results(machine, rounds, sections)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Sizes and rates of Unweight beside its peers."
    )
    parser.add_argument("--only", choices=SECTIONS, help="one part of the tables")
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
