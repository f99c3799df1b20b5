"""What a comparison of methods found, as plain data."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from unweight.evaluation.measure.estimates import Estimate, finite
from unweight.evaluation.measure.perplexity_report import WindowsReport

ORIGINAL: Final = "original"
LOSSLESS: Final = "lossless"
BOUNDED: Final = "bounded"
_ESTIMATES: Final = ("perplexity", "difference", "kl_divergence")


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One way to make the model smaller.

    Attributes:
        name: Its name.
        kind: ``ORIGINAL``, ``LOSSLESS``, ``BOUNDED``, or the kind of another method.
        nbytes: Size of the weights.
        is_file: Whether that is the size of real files; otherwise it is computed, payload only.
        bits_per_weight: That size, by all weights of the model.
        weight_error: Frobenius norm of the errors of all matrices by that of the matrices.
        perplexity: Perplexity of the model with these weights; None where it was not measured.
        difference: What it is higher by than that of the original; None likewise.
        kl_divergence: Mean KL(original ‖ this) in nats per token; None likewise.
    """

    name: str
    kind: str
    nbytes: int
    is_file: bool
    bits_per_weight: float
    weight_error: float
    perplexity: Estimate | None = None
    difference: Estimate | None = None
    kl_divergence: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON-ready data; numbers that are not finite become None."""
        found: dict[str, Estimate | None] = {name: getattr(self, name) for name in _ESTIMATES}
        return (
            asdict(self)
            | {name: estimate.to_dict() if estimate else None for name, estimate in found.items()}
            | {"weight_error": finite(self.weight_error)}
        )


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """The rows, the original first, and how they were measured.

    ``unchanged`` names the matrices whose rows do not suit every method. ``evaluated`` is None
    and ``device`` is "" where no perplexity was measured.
    """

    source: str
    matrices: int
    matrix_weights: int
    weights: int
    unchanged: tuple[str, ...]
    evaluated: WindowsReport | None
    rows: tuple[ComparisonRow, ...]
    device: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self) | {"rows": [row.to_dict() for row in self.rows]}
