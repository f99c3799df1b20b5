"""Error bounds for every tensor from a sensitivity file: equal slope of loss against bits.

An error of mean square e on n weights costs about n · F · e / 2 nats per token, F being the mean
squared gradient, and e = ε² · w, w being the mean square of the weights. Bits fall with log₂ ε. So
all tensors lose equally much for a bit saved when F · w · ε² is the same for all of them. (The
reverse water-filling of rate-distortion theory, with weighted squares as the distortion; Cover and
Thomas, Elements of Information Theory, section 10.3.)
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from unweight_cli.evaluation.profile import FORMAT, VERSION
from unweight_codecs.containers.base import FileSource
from unweight_codecs.errors import FormatError, quoted

WRITTEN_BY: Final = "`unweight profile` writes a sensitivity file"
MAX_BYTES: Final = 1 << 26
_CLOSE: Final = 1e-6
SPREAD: Final = 16.0  # a tensor's bound is at most so many times above or below the common one


@dataclass(frozen=True, slots=True)
class Tensor:
    """What an allocation needs to know of a tensor."""

    name: str
    parameters: int
    mean_square: float
    mean_squared_gradient: float


def read_sensitivity(path: Path) -> tuple[Tensor, ...]:
    """Return the matrices of a file that ``unweight profile`` wrote.

    Raises FormatError when it is another file.
    """
    with FileSource(path) as file:
        data = file.read_at(0, min(file.size, MAX_BYTES))
    try:
        document = json.loads(data)
        kind = document["format"], document["version"]
        # Vectors are not coded with an error, so they have no share of it.
        rows = [row for row in document["tensors"] if len(row["shape"]) > 1]
        tensors = tuple(map(_tensor, rows))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(
            f"{path}: not a sensitivity file: {quoted(error)}", hint=WRITTEN_BY
        ) from None
    if kind != (FORMAT, VERSION):
        raise FormatError(f"{path}: has the unknown format {quoted(kind)}", hint=WRITTEN_BY)
    return tensors


def _tensor(row: Mapping[str, Any]) -> Tensor:
    tensor = Tensor(
        str(row["name"]),
        int(row["parameters"]),
        float(row["mean_square"]),
        float(row["mean_squared_gradient"]),
    )
    if not all(
        math.isfinite(value) and value >= 0
        for value in (tensor.parameters, tensor.mean_square, tensor.mean_squared_gradient)
    ):
        raise ValueError(f"impossible figures for {quoted(tensor.name)}")
    return tensor


def allocate(tensors: tuple[Tensor, ...], epsilon: float) -> dict[str, float]:
    """Return a bound per tensor, so that all of them together have the relative error ``epsilon``.

    A tensor that the loss does not depend on, as far as the profile can tell, gets the largest
    bound of ``SPREAD`` times ``epsilon``.
    """
    shares = {
        tensor.name: 1 / math.sqrt(tensor.mean_square * tensor.mean_squared_gradient)
        for tensor in tensors
        if tensor.mean_square * tensor.mean_squared_gradient > 0
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
