"""What a perplexity gate found, as plain data."""

from dataclasses import asdict, dataclass
from typing import Any

from unweight.evaluation.measure.estimates import Estimate
from unweight.evaluation.model.token_windows import TokenWindows

BIT_EXACT = "bit-exact: the difference is zero by proof"
MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class WindowsReport:
    """What was evaluated. ``bos``: the token that begins every window, "" for none."""

    text: str
    text_bytes: int
    text_tokens: int
    context: int
    windows: int
    scored_tokens: int
    bos: str


@dataclass(frozen=True, slots=True)
class PerplexityReport:
    """Perplexity before and after, or the proof that there is no difference.

    ``evaluated`` is None where nothing was measured. Without an original there is neither
    ``original`` nor anything that compares with it. ``failure`` is "" where the gate is open.
    """

    verdict: str
    bit_exact: bool
    evaluated: WindowsReport | None
    original: Estimate | None
    restored: Estimate | None
    difference: Estimate | None
    kl_divergence: Estimate | None
    same_top: Estimate | None
    max_delta: float | None
    vocabulary: int
    device: str
    seconds: float
    failure: str

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data; numbers that are not finite become None."""
        numbers = ("original", "restored", "difference", "kl_divergence", "same_top")
        estimates: dict[str, Estimate | None] = {name: getattr(self, name) for name in numbers}
        return asdict(self) | {
            name: estimate.to_dict() if estimate else None for name, estimate in estimates.items()
        }


def describe(
    windows: TokenWindows, bos_token: str | None, first: int | None = None
) -> WindowsReport:
    """Describe ``windows``, scored from position ``first`` on instead of their second half."""
    skipped = windows.first if first is None else first
    count, context = windows.ids.shape
    return WindowsReport(
        text=windows.text.name,
        text_bytes=windows.text.nbytes,
        text_tokens=windows.text_tokens,
        context=context,
        windows=count,
        scored_tokens=count * (context - 1 - skipped),
        bos="" if windows.bos is None else str(bos_token),
    )


def proven(max_delta: float | None) -> PerplexityReport:
    """Return the report about weights that are the original ones, bit for bit."""
    return PerplexityReport(
        verdict=BIT_EXACT,
        bit_exact=True,
        evaluated=None,
        original=None,
        restored=None,
        difference=Estimate(0.0, 0.0),
        kl_divergence=Estimate(0.0, 0.0),
        same_top=Estimate(1.0, 0.0),
        max_delta=max_delta,
        vocabulary=0,
        device="",
        seconds=0.0,
        failure="",
    )
