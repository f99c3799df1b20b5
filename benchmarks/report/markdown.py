"""Tables in Markdown that are readable in a terminal, too."""

from collections.abc import Iterable, Sequence

from benchmarks.cpu.measure import Spread


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int] = ()) -> str:
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


def rate(value: Spread, unit: float, decimals: int) -> str:
    """Return a rate in multiples of ``unit``: ``"0.33 (0.32-0.34)"``; of one round, the median."""
    median, low, high = (f"{each / unit:.{decimals}f}" for each in value)
    return median if value.low == value.high else f"{median} ({low}-{high})"


def blank_repeats(names: Iterable[str]) -> list[str]:
    """Return ``names`` with each that equals the one before it left empty."""
    shown, result = None, []
    for name in names:
        result.append("" if name == shown else name)
        shown = name
    return result
