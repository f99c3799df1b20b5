"""The first pass over a tensor: its histograms, region by region, and its digest."""

from collections.abc import Callable

import numpy as np
import xxhash
from numpy.typing import NDArray

from unweight_codecs.codec import MAX_REGIONS, Reader, TensorView
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import ALPHABET, SAMPLING_STRIDE, Bytes
from unweight_codecs.layouts import WordLayout, layout_of, streams_of
from unweight_codecs.layouts.blocks import take_apart
from unweight_codecs.layouts.contexts import CONTEXTS
from unweight_codecs.parallel import OrderedMap
from unweight_codecs.tensor_spec import TensorSpec

SURVEY_CHUNKS = 8  # read at once
# Large float tensors are counted on a sample of stretches: the model is as good, for less time.
_STRETCH_WORDS = 1 << 12
_SAMPLED_FROM_WORDS = 1 << 16
_MANY_VALUES = 16  # per block: such fields are counted on a sample of blocks


def survey(
    spec: TensorSpec,
    read: Reader,
    chunk_words: int,
    observe: Callable[[Bytes], None],
    ordered: OrderedMap = map,
) -> tuple[TensorView, str]:
    """Read a tensor once, in order; return its view and the XXH3-64 of its bytes in hex.

    ``observe`` is called with every piece of the tensor's bytes, in order and from this thread.
    """
    layout = layout_of(spec)
    chunks = -(-layout.words // chunk_words)
    per_region = max(1, -(-chunks // MAX_REGIONS))
    bins = 1 << layout.histogram_bits if layout.is_float else _plain_bins(layout)
    histograms = np.zeros((-(-chunks // per_region), bins), np.int64)
    digest = xxhash.xxh3_64()

    def count(first: int) -> tuple[Bytes, list[NDArray[np.uint32]]]:
        words = read(first, min(SURVEY_CHUNKS * chunk_words, layout.words - first))
        step = chunk_words * layout.word_bytes
        return words, [
            _histogram(words[at : at + step], layout) for at in range(0, words.size, step)
        ]

    spans = range(0, layout.words, SURVEY_CHUNKS * chunk_words)
    for first, (words, counts) in zip(spans, ordered(count, spans), strict=True):
        digest.update(words.data)
        observe(words)
        for i, chunk in enumerate(counts):
            histograms[(first // chunk_words + i) // per_region] += chunk
    sampled = _is_sampled(layout)
    if sampled:
        _scale(histograms, per_region * chunk_words, layout.words)
    view = TensorView(spec, layout, chunk_words, per_region, histograms, read, sampled)
    return view, digest.hexdigest()


def _scale(histograms: NDArray[np.int64], region_words: int, words: int) -> None:
    """Scale sampled counts up to the words of each region."""
    starts = np.arange(len(histograms)) * region_words
    sizes = np.minimum(words - starts, region_words)
    counted = np.maximum(histograms.sum(axis=1), 1)
    histograms *= sizes[:, None]
    histograms //= counted[:, None]


def _is_sampled(layout: WordLayout) -> bool:
    return layout.is_float and layout.words >= _SAMPLED_FROM_WORDS


def _histogram(words: Bytes, layout: WordLayout) -> NDArray[np.uint32]:
    if layout.is_float:
        field = words.view(f"<u{layout.word_bytes}")
        stretch = _STRETCH_WORDS if _is_sampled(layout) else 0
        return kernels().histogram(field, layout.histogram_shift, layout.histogram_bits, stretch)
    if layout.fields:
        return _block_histogram(words.reshape(-1, layout.word_bytes), layout)
    streams = streams_of(words, layout).values()
    return np.concatenate([kernels().histogram(stream, 0, 8) for stream in streams])


def _block_histogram(blocks: Bytes, layout: WordLayout) -> NDArray[np.uint32]:
    """Count fields of many values on a sample of the blocks, the others on all."""
    few = [field for field in layout.fields if field.count < _MANY_VALUES]
    many = [field for field in layout.fields if field.count >= _MANY_VALUES]
    exact = take_apart(blocks, few)
    sampled = take_apart(blocks[::SAMPLING_STRIDE], many)
    rows = []
    for stream, bits in layout.plain_streams().items():
        counts = kernels().histogram((exact if stream in exact else sampled)[stream], 0, 8)
        rows.append(counts if stream in exact else _scaled(counts, bits))
    for stream, predictor in layout.predicted.items():
        contexts = predictor.contexts(exact)
        if stream in exact:
            rows.append(_by_context(contexts, exact[stream]))
        else:
            counts = _by_context(contexts[::SAMPLING_STRIDE], sampled[stream])
            rows.append(_scaled(counts, layout.plain_streams()[stream]))
    return np.concatenate(rows)


def _by_context(contexts: Bytes, values: Bytes) -> NDArray[np.uint32]:
    """Count the values of blocks per context, shape (CONTEXTS * 256)."""
    firsts = (contexts.astype(np.uint16) * ALPHABET).repeat(values.size // max(contexts.size, 1))
    return kernels().histogram(firsts + values, 0, (CONTEXTS * ALPHABET).bit_length() - 1)


def _scaled(counts: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Scale sampled counts up; what was not seen may still occur and needs a frequency."""
    scaled = counts.reshape(-1, ALPHABET) * np.uint32(SAMPLING_STRIDE)
    scaled[:, : 1 << bits] += np.uint32(1)
    return scaled.reshape(-1)


def _plain_bins(layout: WordLayout) -> int:
    """Return the counters of a region: per stream, then per context of each predicted stream."""
    return ALPHABET * (len(layout.plain_streams()) + CONTEXTS * len(layout.predicted))
