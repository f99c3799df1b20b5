"""What ``compare`` measured, as a plot: bits per weight against error and divergence."""

import io
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unweight.evaluation.compare.comparison_report import (
    BOUNDED,
    LOSSLESS,
    ORIGINAL,
    ComparisonReport,
    ComparisonRow,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = {".png": "png", ".svg": "svg"}  # by suffix
# Colours that people with any colour vision can tell apart (Okabe and Ito), and shapes.
_COLOURS: Final = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#F0E442", "#000000")
_SHAPES: Final = "sD^vPX*hd"
_OURS: Final = "#0072B2"
_EXACT: Final = "#777777"
_STYLES: Final = ("-", "--", ":", "-.")
_PANEL: Final = (6.0, 4.6)  # inches
_SETTINGS: Final = {"svg.hashsalt": "unweight", "svg.fonttype": "path", "font.size": 9}


def drawn(report: ComparisonReport, kind: str) -> bytes:
    """Return the plot in one of ``FORMATS``; the same report gives the same bytes."""
    # It tells of caches of fonts that it builds or cannot keep, which no one asked for.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib import rc_context, style
    from matplotlib.figure import Figure

    panels: list[tuple[str, Callable[[ComparisonRow], float]]] = [
        ("relative error of the weights", lambda row: row.weight_error)
    ]
    if report.evaluated:
        panels.append(("KL divergence, nats per token", _divergence))
    width, height = _PANEL
    # Whatever settings the user's other plots have, this one is the same.
    with style.context("default"), rc_context(_SETTINGS):
        figure = Figure(figsize=(width * len(panels), height + 1), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for one, (label, value) in zip(axes, panels, strict=True):
            _draw(one, report, label, value)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _divergence(row: ComparisonRow) -> float:
    return row.kl_divergence.value if row.kl_divergence else math.nan


def _draw(
    axes: "Axes", report: ComparisonReport, label: str, value: Callable[[ComparisonRow], float]
) -> None:
    exact = [row for row in report.rows if row.kind in (ORIGINAL, LOSSLESS)]
    bounded = [row for row in report.rows if row.kind == BOUNDED]
    others = [row for row in report.rows if row not in exact and row not in bounded]
    for number, row in enumerate(exact):  # no place on a logarithmic axis: they have no error
        name = row.name if row.kind == ORIGINAL else f"{row.name}, lossless"
        line = _STYLES[number % len(_STYLES)]
        axes.axvline(row.bits_per_weight, color=_EXACT, linewidth=1, linestyle=line, label=name)
    _points(axes, bounded, value, color=_OURS, marker="o", linestyle="-", label="bounded")
    for number, row in enumerate(others):
        shape, colour = _SHAPES[number % len(_SHAPES)], _COLOURS[number % len(_COLOURS)]
        _points(axes, [row], value, color=colour, marker=shape, linestyle="", label=row.name)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("bits per weight")
    axes.set_ylabel(label)
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)


def _points(
    axes: "Axes", rows: list[ComparisonRow], value: Callable[[ComparisonRow], float], **look: str
) -> None:
    """Draw the rows whose value has a place on a logarithmic axis, and the name of all in any case.

    A divergence of next to nothing may come out below zero.
    """
    points = sorted(
        (row.bits_per_weight, found)
        for row in rows
        if math.isfinite(found := value(row)) and found > 0
    )
    axes.plot([x for x, _ in points], [y for _, y in points], **look)
