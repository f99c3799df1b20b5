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

_CLOSE: Final = 1e-6
SPREAD: Final = 16.0  # a tensor's bound is at most so many times above or below the common one


@dataclass(frozen=True, slots=True)
class Tensor:
    """What an allocation needs to know of a tensor."""

    name: str
    parameters: int
    mean_square: float
    mean_squared_gradient: float

    @property
    def importance(self) -> float:
        """Twice what a relative error of 1 costs per weight, in nats per token."""
        return self.mean_square * self.mean_squared_gradient


def allocate(tensors: tuple[Tensor, ...], epsilon: float) -> dict[str, float]:
    """Return a bound per tensor, so that all of them together have the relative error ``epsilon``.

    A tensor that the loss does not depend on, as far as the profile can tell, gets the largest
    bound of ``SPREAD`` times ``epsilon``.
    """
    shares = {
        tensor.name: 1 / math.sqrt(tensor.importance) for tensor in tensors if tensor.importance > 0
    }
    energies = {tensor.name: tensor.parameters * tensor.mean_square for tensor in tensors}
    total = sum(energies[name] for name in shares)
    if not total:
        return {}
    factor = 1.0
    for _ in range(20):  # limits change the common factor, which changes what is limited
        limited = {name: _limited(factor * share) for name, share in shares.items()}
        error = sum(energies[name] * value**2 for name, value in limited.items()) / total
        factor /= math.sqrt(error)
        if abs(error - 1) < _CLOSE:
            break
    found = {name: min(1.0, epsilon * value) for name, value in limited.items()}
    largest = min(1.0, epsilon * SPREAD)
    return {tensor.name: largest for tensor in tensors} | found


def _limited(value: float) -> float:
    return min(max(value, 1 / SPREAD), SPREAD)
