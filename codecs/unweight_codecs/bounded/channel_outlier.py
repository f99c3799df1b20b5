"""Outlier detection with an error bound: weights far out in their channel stay as they are."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.float_words import values_of
from unweight_codecs.codec import Mode, Stage, TensorView
from unweight_codecs.errors import UsageError
from unweight_codecs.model import TensorModel

_LARGEST_TAU = 1e6


@dataclass(frozen=True)
class ChannelOutlier(Stage):
    """Keeps weights beyond tau standard deviations of their channel bit-exact.

    A channel is a row: the weights that share all indexes but the last.

    Attributes:
        tau: Standard deviations; 0 for no outliers: only what the grid has no level for escapes.
    """

    tau: float = 0

    name: ClassVar[str] = "channel_outlier"
    slot: ClassVar[str] = "outlier"
    mode: ClassVar[Mode | None] = "bounded"

    def __post_init__(self) -> None:
        if type(self.tau) not in (int, float) or not 0 <= self.tau <= _LARGEST_TAU:
            raise UsageError(f"stage {self.label()}: tau must be 0 to 1000000, not {self.tau!r}")

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Measure every channel; what is beyond tau of them is decided word by word."""
        if self.tau:
            settings = model.on_levels.settings
            settings.tau, settings.row_deviations = self.tau, _deviations(tensor)


def _deviations(tensor: TensorView) -> NDArray[np.float32]:
    """Return the standard deviation of the finite weights of every row."""
    layout = tensor.layout
    rows = layout.words // layout.columns
    out = np.zeros(rows, np.float32)
    step = max(1, tensor.chunk_words // layout.columns)
    for first in range(0, rows, step):
        number = min(step, rows - first)
        words = tensor.read(first * layout.columns, number * layout.columns)
        values = values_of(words, tensor.spec.dtype).reshape(number, -1)
        values = np.where(np.isfinite(values), values, 0).astype(np.float64)
        out[first : first + number] = values.std(axis=1)
    return out
