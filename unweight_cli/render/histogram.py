"""A column chart of counts, drawn with block characters."""

from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def columns(counts: Sequence[int], *, height: int, width: int) -> list[str]:
    """Return the chart as ``height`` lines of text, top first.

    Every count becomes a bar, as wide as fits into ``width`` characters; the largest reaches the
    top, and one that is not zero is always visible. More counts than ``width`` are added up in
    neighbouring groups of equal size.
    """
    bars = _grouped(counts, width)
    if not bars or max(bars) == 0:
        return []
    peak = max(bars)
    eighths = [max(round(8 * height * bar / peak), 1) if bar else 0 for bar in bars]
    repeat = max(1, min(4, width // len(bars)))
    return [
        "".join(_EIGHTHS[min(max(level - 8 * row, 0), 8)] * repeat for level in eighths)
        for row in reversed(range(height))
    ]


def _grouped(counts: Sequence[int], limit: int) -> list[int]:
    group = -(-len(counts) // limit) if counts else 1
    return [sum(counts[start : start + group]) for start in range(0, len(counts), group)]
