"""Fits the model of a tensor that may change by a relative error: steps, grid and tables."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import Model, TensorView
from unweight_codecs.entropy import frequencies
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.base import ALPHABET, Frequencies, LevelForm
from unweight_codecs.quantise.forms import (
    TABLE_UNIT,
    WIDE,
    WIDE_BITS,
    Choice,
    Counts,
    equally_spaced,
    table_form,
)
from unweight_codecs.quantise.levels import LARGEST_STEP, SMALLEST_STEP, squared_error
from unweight_codecs.quantise.steps import (
    MARGIN,
    Chunk,
    Step,
    chunks_of,
    encode_chunk,
    error_of,
    step_for,
)

_UNIFORM: Final = float(np.sqrt(12))  # the error of equally spaced levels is step / sqrt(12)
_SAMPLE: Final = 1 << 13
_WORTHWHILE: Final = 0.995  # a grid with a table has to be smaller by this much


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was decided for a tensor, and the bits that it takes with tables and escapes."""

    form: LevelForm
    steps: list[Step]
    tables: Frequencies
    table_of_region: NDArray[np.uint8]
    bits: int


def fit(tensor: TensorView, model: Model, spacing: str, tables: int) -> Fitted:
    """Find the smallest grid that keeps every chunk within ``model.epsilon``.

    ``spacing`` names one of ``SPACINGS``, or ``"auto"`` tries all. A table of levels that some
    chunk cannot keep the bound with is not used.
    """
    word_bits = 8 * tensor.layout.word_bytes
    steps, histograms = _equal_steps(tensor, model)
    best = _with_tables(equally_spaced(histograms, word_bits), steps, word_bits, tables)
    wanted = ("cdf", "lloyd") if spacing == "auto" else (spacing,)
    sample = None if spacing == "uniform" else _normalised_sample(tensor, model)
    for name in wanted:
        if sample is None or not sample.size:
            break
        form = table_form(sample, model.epsilon, name)
        if form is None:
            continue
        if spacing == "auto" and _expected(sample, form) * tensor.layout.words > best.bits:
            continue
        found = _with_levels(tensor, model, form, word_bits, tables)
        if found and (spacing != "auto" or found.bits < _WORTHWHILE * best.bits):
            best = found
    return best


def _region(tensor: TensorView, chunk: Chunk) -> int:
    return chunk.number // tensor.chunks_per_region


def _equal_steps(tensor: TensorView, model: Model) -> tuple[list[Step], Counts]:
    """Return the step of every chunk, and the counts of levels per region."""
    levels = WIDE.limit << WIDE.low_bits
    steps: list[Step] = []
    counts = np.zeros((len(tensor.histograms), levels + 1), np.int64)
    for chunk in chunks_of(tensor, model):
        step = step_for(chunk, model.epsilon, WIDE, _UNIFORM)
        steps.append(step)
        coded = encode_chunk(chunk, step, WIDE)
        level = coded.symbols.astype(np.uint16) << np.uint16(WIDE.low_bits) | coded.low
        found = kernels().histogram(level, 0, WIDE_BITS)
        kept = int(np.count_nonzero(coded.symbols == WIDE.limit))
        row = counts[_region(tensor, chunk)]
        row[:-1] += found
        row[0] -= kept  # escapes are counted as the lowest level so far
        row[-1] += kept
    return steps, counts


def _with_tables(choice: Choice, steps: list[Step], word_bits: int, tables: int) -> Fitted:
    found, region, coded = frequencies.cluster(choice.counts, tables)
    form, escapes = choice.form, int(choice.counts[:, choice.form.limit].sum())
    bits = coded + int(choice.counts.sum()) * form.low_bits + escapes * word_bits
    return Fitted(form, steps, found, region, bits)


def _normalised_sample(tensor: TensorView, model: Model) -> NDArray[np.float64]:
    """Return values of all chunks, each divided by its root mean square."""
    parts = []
    each = max(1, _SAMPLE // tensor.chunks)
    for chunk in chunks_of(tensor, model):
        values = _used(chunk)
        mean = _root_mean_square(chunk)
        if mean > 0:
            parts.append(values[:: max(1, values.size // each)] / mean)
    return np.concatenate(parts) if parts else np.zeros(0)


def _used(chunk: Chunk) -> NDArray[np.float64]:
    values = chunk.values
    used = np.isfinite(values) if chunk.kept is None else np.isfinite(values) & ~chunk.kept
    found = values[used].astype(np.float64)
    return found if chunk.prediction is None else found - chunk.prediction[used]


def _root_mean_square(chunk: Chunk) -> float:
    square, _, _ = squared_error(chunk.words, chunk.words, chunk.dtype)
    return float(np.sqrt(square / chunk.count))


def _expected(sample: NDArray[np.float64], form: LevelForm) -> float:
    """Return the entropy of the levels of a sample, in bits."""
    counts = np.bincount(np.searchsorted(form.middles(), sample * TABLE_UNIT))
    share = counts[counts > 0] / sample.size
    return float(-(share * np.log2(share)).sum())


def _with_levels(
    tensor: TensorView, model: Model, form: LevelForm, word_bits: int, tables: int
) -> Fitted | None:
    steps: list[Step] = []
    counts = np.zeros((len(tensor.histograms), ALPHABET), np.int64)
    for chunk in chunks_of(tensor, model):
        size = _root_mean_square(chunk) / TABLE_UNIT or 1.0
        if not SMALLEST_STEP <= size <= LARGEST_STEP:
            return None
        step = Step.of(size)
        square, error = error_of(chunk, step, form)
        if error > model.epsilon**2 * square * MARGIN:
            return None
        steps.append(step)
        symbols = encode_chunk(chunk, step, form).symbols
        counts[_region(tensor, chunk)] += np.bincount(symbols, minlength=ALPHABET)
    fitted = _with_tables(Choice(form, 0, counts), steps, word_bits, tables)
    bits = fitted.bits + 32 * form.limit  # those of the levels themselves
    return Fitted(form, steps, fitted.tables, fitted.table_of_region, bits)
