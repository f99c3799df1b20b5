"""What the model of a tensor holds when its words may change within an error bound."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels.base import LevelForm, LowRank

_ZERO: Final = LevelForm(low_bits=0, limit=1)  # the level 0 alone, until levels are chosen


@dataclass(slots=True)
class Guide:
    """What only the encoder goes by. A decoder has none of it.

    Attributes:
        epsilon: Relative error allowed in the tensor and in each of its chunks.
        tau: Words beyond so many standard deviations of their row are kept.
        row_deviations: Standard deviation of each row; None where ``tau`` keeps no word.
        spacing: How levels may be spaced: ``"uniform"``, one of ``quantise.tables.TABLES``, or
            ``"auto"``.
        tables: Most frequency tables of the symbols.
        step_sizes: How far apart the levels of each chunk are, which may differ a little from
            what one is worth; None where it does not.
    """

    epsilon: float = 0.0
    tau: float = np.inf
    row_deviations: NDArray[np.float32] | None = None
    spacing: str = "uniform"
    tables: int = 1
    step_sizes: NDArray[np.float32] | None = None


@dataclass(slots=True)
class Bounded:
    """The part of a model that puts words on levels. A decoder rebuilds all but the ``guide``.

    Attributes:
        form: The grid of levels, the same in all chunks.
        steps: What one level is worth, float32, shape (chunks,); 0 where all words are kept.
        factors: What is added to the levels; None where nothing is.
        guide: For the encoder.
    """

    form: LevelForm = _ZERO
    steps: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    factors: LowRank | None = None
    guide: Guide = field(default_factory=Guide)
