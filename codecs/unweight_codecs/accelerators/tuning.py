"""What an accelerator has measured to choose, per matrix and batch, how it multiplies."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TuningRow:
    """One matrix [rows, columns] and number of rows of activations.

    ``seconds`` has the median time of every strategy; ``cached`` says that it is of an earlier run.
    """

    rows: int
    columns: int
    batch: int
    seconds: Mapping[str, float]
    best: str
    cached: bool


@dataclass(frozen=True, slots=True)
class TuningReport:
    """What ``tune`` found. ``notes`` are about the file that keeps it."""

    device: str
    rows: tuple[TuningRow, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)
