"""What ``compare`` measured, as a table."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from unweight.evaluation.compare.comparison_report import (
    LOSSLESS,
    ORIGINAL,
    ComparisonReport,
    ComparisonRow,
)
from unweight.evaluation.compare.methods import GROUP
from unweight.units import count, duration, percent, shortened
from unweight_cli.render.layout import table, title

UNMEASURED = "-"
NO_CHANGE = "0"
EXACT = (ORIGINAL, LOSSLESS)
TOO_LARGE = 1e6  # beyond it, a perplexity says no more than its order of magnitude
DECIMALS = ((1000, 0), (10, 2), (0, 4))  # of perplexities from a value up
MAX_NAMED = 3  # tensors that a note lists


def comparison(report: ComparisonReport) -> Iterator[RenderableType]:
    """Show what each method takes and what it does to the weights and to the model."""
    yield title(report.source)
    measured = ("perplexity", "KL") if report.evaluated else ()
    grid = table(("weights as",), ("size", "bits", "error", *measured))
    whole = report.rows[0].nbytes
    for row in report.rows:
        cells = [
            percent(row.nbytes, whole, decimals=2),
            f"{row.bits_per_weight:.3f}",
            f"{row.weight_error:.3g}",
        ]
        if report.evaluated:
            cells += [_perplexity(row), _divergence(row)]
        grid.add_row(row.name, *cells)
    yield grid
    for note in _notes(report):
        yield Text(note, style="dim")


def _perplexity(row: ComparisonRow) -> str:
    """Return that of the original, and by how much it is higher with other weights."""
    if row.kind == LOSSLESS:
        return NO_CHANGE
    estimate, sign = (row.perplexity, "") if row.kind == ORIGINAL else (row.difference, "+")
    if estimate is None:
        return UNMEASURED
    if not abs(estimate.value) < TOO_LARGE:  # or not finite
        return f"{estimate.value:{sign}.3g}"
    decimals = next(places for least, places in DECIMALS if abs(estimate.value) >= least)
    return f"{estimate.value:{sign},.{decimals}f} ± {estimate.standard_error:,.{decimals}f}"


def _divergence(row: ComparisonRow) -> str:
    if row.kl_divergence is None:
        return UNMEASURED
    return NO_CHANGE if row.kind in EXACT else f"{row.kl_divergence.value:.3g}"


def _notes(report: ComparisonReport) -> Iterator[str]:
    yield (
        f"Every row changes the same {count(report.matrices, 'tensor')}, "
        f"{percent(report.matrix_weights, report.weights, decimals=2)} of the "
        f"{count(report.weights, 'weight')}. error: of all of them together, relative, in the "
        "Frobenius norm."
    )
    yield (
        "Sizes of the original, the presets and the bounds (preset default) are those of real "
        "files; the others are computed from their formats, payload only. What the presets "
        "compress is bit-exact, which is checked while they do it."
    )
    yield (
        "INT8: symmetric, an F32 scale per row. "
        f"INT4: symmetric, an F16 scale per {GROUP} weights. "
        "Pruned: a bit for each weight or row, and the words that are left."
    )
    if report.unchanged:
        more = len(report.unchanged) - MAX_NAMED
        names = ", ".join(map(shortened, report.unchanged[:MAX_NAMED]))
        yield (
            f"INT4, Q8_0 and Q4_0 leave {count(len(report.unchanged), 'tensor')} as they are, "
            f"whose rows are not whole blocks: {names}{f' and {more:,} more' if more > 0 else ''}."
        )
    text = report.evaluated
    if text is None:
        yield f"Perplexity was not measured; {duration(report.seconds)}."
        return
    yield (
        f"Changes of perplexity, and KL divergences in nats per token, on "
        f"{count(text.scored_tokens, 'token')} in {count(text.windows, 'window')} of "
        f"{text.context:,} of {shortened(text.text)}, with standard errors; "
        f"{duration(report.seconds)}, the model in float32 on {report.device}. "
        "More --windows make them narrower."
    )
