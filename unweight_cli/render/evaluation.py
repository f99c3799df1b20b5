"""What ``verify --perplexity`` and ``profile`` found out."""

import re
from collections import defaultdict
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from unweight.evaluation.measure.estimates import Estimate
from unweight.evaluation.measure.perplexity_report import BIT_EXACT, PerplexityReport, WindowsReport
from unweight.evaluation.sensitivity.fisher import TensorSensitivity
from unweight.evaluation.sensitivity.profile import ProfileReport
from unweight.units import count, duration, percent, printable, shortened
from unweight_cli.render.layout import Name, facts, table, title

TOO_LARGE = 1e6  # beyond it, a perplexity says no more than its order of magnitude


def perplexity(report: PerplexityReport, path: str, original: str) -> Iterator[RenderableType]:
    """Show both perplexities, what lies between them, and how they were measured."""
    yield title("perplexity", "" if report.evaluated else report.verdict)
    if report.evaluated is None:
        yield facts(
            (
                ("difference", Text("0, for the weights are those of the original", style="green")),
                ("measured", "nothing; --measure does it all the same"),
            )
        )
        return
    yield facts((*_numbers(report, path, original), *_circumstances(report, report.evaluated)))


def sensitivity(report: ProfileReport, output: str) -> Iterator[RenderableType]:
    """Show how much the tensors of each kind of layer matter, most per weight first."""
    yield title(output)
    groups: dict[str, list[TensorSensitivity]] = defaultdict(list)
    for tensor in report.tensors:
        groups[re.sub(r"\.\d+\.", ".*.", tensor.name)].append(tensor)
    sums = {
        name: (sum(each.parameters for each in group), sum(map(_total, group)))
        for name, group in groups.items()
    }
    everything = sum(total for _, total in sums.values())
    grid = table(("tensors",), ("number", "weights", "per weight", "share"))
    for name, (weights, total) in sorted(
        sums.items(), key=lambda item: -item[1][1] / max(item[1][0], 1)
    ):
        grid.add_row(
            Name(name),
            f"{len(groups[name]):,}",
            f"{weights:,}",
            f"{total / max(weights, 1):.3g}",
            percent(total, everything),
        )
    yield grid
    text = report.calibration
    yield Text(
        f"Mean squared gradient on {count(text.scored_tokens, 'token')} in "
        f"{count(text.windows, 'window')} of {shortened(text.text)}; {duration(report.seconds)}.",
        style="dim",
    )


def _total(tensor: TensorSensitivity) -> float:
    return tensor.parameters * tensor.mean_squared_gradient


def _numbers(
    report: PerplexityReport, path: str, original: str
) -> Iterator[tuple[str, RenderableType]]:
    if report.original:
        yield "original", f"{_number(report.original)}  {shortened(original)}"
    if report.restored:
        yield "perplexity", f"{_number(report.restored)}  {shortened(path)}"
    if report.difference:
        yield (
            "difference",
            Text(_signed(report.difference), style="red" if report.failure else "green"),
        )
    if report.kl_divergence:
        yield "KL divergence", f"{_small(report.kl_divergence)} nats per token"
    if report.same_top:
        yield "same top token", percent(report.same_top.value, 1.0, decimals=2)
    if report.bit_exact:
        yield "proof", BIT_EXACT
    if report.failure:
        yield "gate", Text(printable(report.failure), style="red")
    elif report.max_delta is not None:
        yield "gate", Text(f"within {report.max_delta:g}", style="green")
    else:
        yield "gate", "no original to compare with: --against ORIGINAL"


def _circumstances(
    report: PerplexityReport, evaluated: WindowsReport
) -> Iterator[tuple[str, RenderableType]]:
    bos = f"{printable(evaluated.bos)} first in each" if evaluated.bos else "without BOS"
    yield "text", f"{shortened(evaluated.text)}, {count(evaluated.text_tokens, 'token')}"
    yield (
        "windows",
        f"{count(evaluated.windows, 'window')} of {evaluated.context:,} tokens, {bos}; "
        f"{count(evaluated.scored_tokens, 'token')} scored, the second half of each",
    )
    yield "time", f"{duration(report.seconds)} in float32 on {report.device}"


def _number(estimate: Estimate) -> str:
    if abs(estimate.value) >= TOO_LARGE:
        return f"{estimate.value:.3g}"
    return f"{estimate.value:,.4f} ± {estimate.standard_error:,.4f}"


def _signed(estimate: Estimate) -> str:
    if abs(estimate.value) >= TOO_LARGE:
        return f"{estimate.value:+.3g}"
    return f"{estimate.value:+,.4f} ± {estimate.standard_error:,.4f}"


def _small(estimate: Estimate) -> str:
    return f"{estimate.value:.3g} ± {estimate.standard_error:.2g}"
