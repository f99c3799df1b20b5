"""Error bounds for every tensor from its sensitivity: equal slope of loss against bits.

An error of mean square e on n weights costs about n · F · e / 2 nats per token, F being the mean
squared gradient, and e = ε² · w, w being the mean square of the weights. Bits fall with log₂ ε. So
all tensors lose equally much for a bit saved when F · w · ε² is the same for all of them. (The
reverse water-filling of rate-distortion theory, with weighted squares as the distortion; Cover and
Thomas, Elements of Information Theory, section 10.3.)
"""

import math
from dataclasses import dataclass
from typing import Final

SPREAD: Final = (
    16.0  # a tensor's bound is at most this many times the common one, and at least one part of it
)
_HALVINGS: Final = 100  # of an interval of logarithms: more than a float64 can tell apart


@dataclass(frozen=True, slots=True)
class ProfiledTensor:
    """What an allocation needs to know of a tensor."""

    name: str
    parameters: int
    mean_square: float
    mean_squared_gradient: float

    @property
    def is_weighable(self) -> bool:
        """Whether it has an energy, and a gradient that says what an error of it costs."""
        return min(self.parameters, self.mean_square, self.mean_squared_gradient) > 0

    @property
    def log_energy(self) -> float:
        """Logarithm of the sum of the squared weights, which itself may be beyond a float."""
        return math.log(self.parameters) + math.log(self.mean_square)

    @property
    def log_share(self) -> float:
        """Logarithm of 1 / √(F · w), which the bound is proportional to."""
        return -(math.log(self.mean_square) + math.log(self.mean_squared_gradient)) / 2


def allocate(tensors: tuple[ProfiledTensor, ...], epsilon: float) -> dict[str, float]:
    """Return a bound per tensor, so that all of them together have the relative error ``epsilon``.

    That is Σ bound² · energy ≤ epsilon² · Σ energy, the energy being the sum of squared weights.
    No bound is above 1 or more than ``SPREAD`` times above or below ``epsilon``, a number above 0
    and at most 1. A tensor without a gradient gets ``epsilon`` itself: the profile says nothing
    about it, which is no reason to spend on it, and it adds the same to both sums.
    """
    bounds = dict.fromkeys((tensor.name for tensor in tensors), epsilon)
    weighable = [tensor for tensor in tensors if tensor.is_weighable]
    if not weighable:
        return bounds
    logs = [tensor.log_energy for tensor in weighable]
    energies = [math.exp(log - max(logs)) for log in logs]
    shares = [tensor.log_share for tensor in weighable]
    lowest, highest = -math.log(SPREAD), math.log(min(SPREAD, 1 / epsilon))

    def relative(common: float) -> list[float]:
        """Return the bounds as multiples of ``epsilon``, for a common factor's logarithm."""
        return [math.exp(min(max(share + common, lowest), highest)) for share in shares]

    # Their error grows with the common factor: from all at the lower limit to all at the upper.
    low, high = lowest - max(shares), highest - min(shares)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _error(relative(middle), energies) <= 1:
            low = middle
        else:
            high = middle
    largest = min(1.0, SPREAD * epsilon)  # exp(log(x)) may round up
    found = (min(largest, epsilon * value) for value in relative(low))
    return bounds | dict(zip((tensor.name for tensor in weighable), found, strict=True))


def _error(values: list[float], energies: list[float]) -> float:
    """Return the mean of the squared values, weighted by energy."""
    pairs = zip(values, energies, strict=True)
    return sum(value**2 * energy for value, energy in pairs) / sum(energies)
