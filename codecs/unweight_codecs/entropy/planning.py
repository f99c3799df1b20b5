"""Which coder each byte plane gets: raw, a frequency table, or zstd. Decided by measuring."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import TensorView
from unweight_codecs.entropy import frequencies, zstd
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import ALPHABET, Bytes
from unweight_codecs.layouts import streams_of
from unweight_codecs.layouts.contexts import CONTEXTS
from unweight_codecs.model import TensorModel

SAMPLE_WORDS = 1 << 12  # per sampled region: enough to see whether a plane is uniform
SAMPLED_REGIONS = 32
WORTH_CODING = 0.985  # a plane that would keep more than this of its size stays raw
ZSTD_LEVEL = 3  # what is planned with is what codes: payload.coders takes it from here
ZSTD_GAIN = 0.97  # zstd has to beat order-0 by this much, as it decodes slower


@dataclass(frozen=True, slots=True)
class _Field:
    """Bits of a word that one plane holds; ``signed`` planes have the sign above them."""

    stream: str
    shift: int
    bits: int
    signed: bool


def plan_planes(tensor: TensorView, model: TensorModel, tables: int) -> None:
    """Choose coders and fit tables for all streams except the symbols and escapes."""
    if tensor.layout.is_float:
        _plan_float_planes(tensor, model, tables)
    else:
        _plan_plain_streams(tensor, model, tables)


def _float_fields(model: TensorModel) -> list[_Field]:
    low_bits = model.layout.mantissa_bits - model.top_bits
    fields = []
    for stream, width in model.streams().items():
        if stream in ("symbol", "escape"):
            continue
        shift = 8 * (model.split.raw_bits // 8 if stream == "top" else int(stream[5:]))
        signed = shift + width > low_bits
        fields.append(_Field(stream, shift, width - signed, signed))
    return fields


def _plan_float_planes(tensor: TensorView, model: TensorModel, tables: int) -> None:
    fields = [field for field in _float_fields(model) if field.bits]
    stride = -(-len(tensor.histograms) // SAMPLED_REGIONS)
    sampled = _field_counts(tensor, fields, SAMPLE_WORDS, stride)
    worthwhile = [field for field in fields if _shrinks(sampled[field.stream], model, field)]
    full = _field_counts(tensor, worthwhile, tensor.chunk_words * tensor.chunks_per_region)
    for field in worthwhile:
        _fit(tensor, model, field.stream, full[field.stream], tables)


def _shrinks(sampled: NDArray[np.int64], model: TensorModel, field: _Field) -> bool:
    raw = model.streams()[field.stream] * int(sampled.sum())
    return _order0_bits(sampled) < WORTH_CODING * raw


def _plan_plain_streams(tensor: TensorView, model: TensorModel, tables: int) -> None:
    layout = tensor.layout
    sample = {} if layout.fields else streams_of(_first_chunk(tensor), layout)
    for k, (stream, bits) in enumerate(model.streams().items()):
        counts = tensor.histograms[:, k * ALPHABET : (k + 1) * ALPHABET]
        raw = bits * layout.per_word(stream) * layout.words
        order0 = min(_order0_bits(counts), raw)
        # Fields of blocks are known to be noise under a distribution: only others may repeat.
        repeated = raw if layout.fields else _zstd_share(sample[stream]) * raw
        if repeated < ZSTD_GAIN * order0:
            model.coders[stream] = "zstd"
            model.estimated_bits += int(repeated)
        elif order0 < WORTH_CODING * raw:
            _fit(tensor, model, stream, counts, tables)
        else:
            model.estimated_bits += raw
    for k, stream in enumerate(layout.predicted):
        _fit_contexts(tensor, model, stream, k)


def _first_chunk(tensor: TensorView) -> Bytes:
    return tensor.read(0, min(tensor.layout.words, tensor.chunk_words))


def _fit_contexts(tensor: TensorView, model: TensorModel, stream: str, k: int) -> None:
    """Give the ``k``-th predicted stream a table per context if that makes it smaller."""
    first = ALPHABET * (len(model.streams()) + CONTEXTS * k)
    counts = tensor.histograms[:, first : first + ALPHABET * CONTEXTS].sum(axis=0)
    counts = counts.reshape(CONTEXTS, ALPHABET)
    tables = frequencies.normalise(counts)
    bits = int(frequencies.costs(counts, tables).sum())
    bits += 8 * int(frequencies.serialised_sizes(tables).sum())
    raw = model.streams()[stream] * tensor.layout.per_word(stream) * tensor.layout.words
    without = model.stream_bits.get(stream, raw)
    if bits >= without:
        return
    model.tables[stream], model.coders[stream] = tables, "rans"
    model.contextual.add(stream)
    model.table_of_chunk.pop(stream, None)
    model.estimated_bits += bits - without


def _fit(
    tensor: TensorView, model: TensorModel, stream: str, counts: NDArray[np.int64], tables: int
) -> None:
    model.tables[stream], choice, bits = frequencies.cluster(counts, tables)
    regions = np.arange(tensor.chunks) // tensor.chunks_per_region
    model.table_of_chunk[stream] = choice[regions]
    model.coders[stream] = "rans"
    model.stream_bits[stream] = bits
    if tensor.layout.is_float:  # the raw size is in the estimate already
        bits -= model.streams()[stream] * tensor.layout.words
    model.estimated_bits += bits


def _order0_bits(counts: NDArray[np.int64]) -> int:
    return int(frequencies.costs(counts, frequencies.normalise(counts)).sum())


def _zstd_share(plane: Bytes) -> float:
    return len(zstd.compress(plane.tobytes(), ZSTD_LEVEL)) / max(plane.size, 1)


def _field_counts(
    tensor: TensorView, fields: list[_Field], words_per_region: int, stride: int = 1
) -> dict[str, NDArray[np.int64]]:
    """Count plane values (regions, 256) on some words of every ``stride``th region."""
    layout, regions = tensor.layout, len(tensor.histograms)
    counts = {field.stream: np.zeros((regions, ALPHABET), np.int64) for field in fields}
    if not fields:
        return counts
    size = tensor.chunk_words * tensor.chunks_per_region
    for region in range(0, regions, stride):
        end = min((region + 1) * size, layout.words, region * size + words_per_region)
        for first in range(region * size, end, tensor.chunk_words):
            words = tensor.read(first, min(tensor.chunk_words, end - first))
            for field in fields:
                counts[field.stream][region] += _plane_histogram(words, layout.word_bytes, field)
    return counts


def _plane_histogram(words: Bytes, word_bytes: int, field: _Field) -> NDArray[np.int64]:
    counted = kernels().histogram(words.view(f"<u{word_bytes}"), field.shift, field.bits)
    out = np.zeros(ALPHABET, np.int64)
    if not field.signed:
        out[: len(counted)] = counted
        return out
    # The sign is as good as random: half of each value's count with and half without it, and at
    # least one of each so that every value that occurs has a frequency.
    out[: len(counted)] = (counted + 1) // 2
    out[len(counted) : 2 * len(counted)] = (counted + 1) // 2
    return out
