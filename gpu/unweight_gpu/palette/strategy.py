"""How a product is computed, and which way is taken without a measurement."""

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from unweight_gpu.palette.format import Layout
from unweight_gpu.palette.product import MAX_TOKENS


class Strategy(StrEnum):
    """What is in memory, and what multiplies."""

    BF16 = "bf16"  # plain words; cuBLAS
    FUSED = "fused"  # a palette; weights are reconstructed in registers
    EXPANDED = "expanded"  # a palette, expanded to plain words for every product; cuBLAS


# Products are measured for these numbers of tokens; those between count as the next larger one.
BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class _Rule(NamedTuple):
    max_tokens: int
    max_weights: int
    order: tuple[Strategy, ...]


# The first rule that a product fits says what is best of what its matrix has in memory. From the
# bytes that each way moves per weight for one token (2, 1.5 and 5.5) and the instructions that the
# fused one needs: estimates, which `tune` replaces by measurements.
_ANY: Final = 1 << 62
_BF16_FIRST: Final = (Strategy.BF16, Strategy.FUSED, Strategy.EXPANDED)
_FUSED_FIRST: Final = (Strategy.FUSED, Strategy.BF16, Strategy.EXPANDED)
DEFAULTS: Final = (
    _Rule(MAX_TOKENS, 1 << 20, _BF16_FIRST),  # starting a kernel takes longer than such a product
    _Rule(8, _ANY, _FUSED_FIRST),
    _Rule(_ANY, _ANY, _BF16_FIRST),
)


def bucket_of(tokens: int) -> int:
    """Return the number of tokens at which a product with so many is measured."""
    return next((size for size in BUCKETS if size >= tokens), BUCKETS[-1])


def usable(tokens: int, held: Collection[Strategy]) -> list[Strategy]:
    """Return those of the strategies that can take so many rows, in a fixed order."""
    return [s for s in Strategy if s in held and (s is not Strategy.FUSED or tokens <= MAX_TOKENS)]


def default(layout: Layout, tokens: int, held: Collection[Strategy]) -> Strategy:
    """Return the first choice of the table among the strategies that a matrix is held for."""
    weights, possible = layout.rows * layout.cols, usable(tokens, held)
    rule = next(r for r in DEFAULTS if tokens <= r.max_tokens and weights <= r.max_weights)
    return next(strategy for strategy in rule.order if strategy in possible)
