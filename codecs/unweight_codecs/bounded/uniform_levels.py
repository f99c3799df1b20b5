"""Equally spaced levels: how many of their bits are coded, and how many levels there are."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.entropy import frequencies
from unweight_codecs.kernels.operands import ALPHABET, LevelForm

WIDE: Final = LevelForm(low_bits=7, limit=128)  # what levels are counted on before a form is chosen
WIDE_BITS: Final = 14  # of its levels
WIDE_LEVELS: Final = WIDE.limit << WIDE.low_bits

Counts = NDArray[np.int64]


def equally_spaced(histograms: Counts, word_bits: int) -> tuple[LevelForm, Counts]:
    """Choose low bits and limit for levels counted on ``WIDE``, shape (regions, levels + 1).

    The last count is that of words that stay as they are. All sizes are computed, none is guessed.
    Returns the form and the counts of its symbols, shape (regions, 256).
    """
    pooled = histograms.sum(axis=0)
    choices = []
    for low_bits in range(WIDE.low_bits + 1):
        limit = _limit(pooled, low_bits)
        form = LevelForm(low_bits, limit)
        counts = _symbol_counts(pooled[None], form)
        table = frequencies.normalise(counts)
        bits = int(frequencies.costs(counts, table)[0]) + 8 * int(
            frequencies.serialised_sizes(table)[0]
        )
        escapes = int(counts[0, limit])
        bits += (int(pooled.sum()) - escapes) * low_bits + escapes * (word_bits + low_bits)
        choices.append((bits, low_bits, form))
    _, _, form = min(choices, key=lambda choice: choice[:2])
    return form, _symbol_counts(histograms, form)


def _limit(pooled: Counts, low_bits: int) -> int:
    """Return how many symbols the levels that occur take, at most 254 and even.

    No more levels than those of ``WIDE``: what lies beyond them was counted as escapes.
    """
    levels = np.flatnonzero(pooled[:-1]) - WIDE.bias
    if not levels.size:
        return 2
    reach = max(-int(levels[0]), int(levels[-1]) + 1)
    return min(254, WIDE_LEVELS >> low_bits, 2 * max(1, -(-reach >> low_bits) + 1))


def _symbol_counts(histograms: Counts, form: LevelForm) -> Counts:
    """Turn counts of levels into counts of a form's symbols, shape (regions, 256)."""
    first, number = WIDE.bias - form.bias, form.limit << form.low_bits
    inside = histograms[:, first : first + number]
    counts = np.zeros((len(histograms), ALPHABET), np.int64)
    counts[:, : form.limit] = inside.reshape(len(inside), form.limit, -1).sum(axis=2)
    counts[:, form.limit] = histograms.sum(axis=1) - inside.sum(axis=1)
    return counts
