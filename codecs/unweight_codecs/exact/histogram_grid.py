"""CDF histogram grid without loss: the probability model of the symbols.

A float format is itself a non-uniform grid of (bin, residual). This stage decides how many mantissa
bits m join the bin in the coded symbol, and quantises the CDF of the symbols, and of every byte
plane that is not already uniform, to 12 bits.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import Mode, Stage, TensorView, check_setting
from unweight_codecs.entropy import frequencies
from unweight_codecs.entropy.planning import plan_planes
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import ALPHABET, padded
from unweight_codecs.layouts import streams_of, words_of
from unweight_codecs.layouts.contexts import CONTEXTS
from unweight_codecs.layouts.words import HISTOGRAM_MANTISSA_BITS
from unweight_codecs.model import TensorModel
from unweight_codecs.span import Span

MAX_TABLES = 64
AUTO = -1
_NO_TABLES = np.zeros((0, ALPHABET), np.uint16)
_CONTEXTUAL = 0x80  # in the number of tables: they are chosen by context


@dataclass(frozen=True)
class HistogramGrid(Stage):
    """Fits frequency tables.

    Attributes:
        mantissa_bits: m, the mantissa bits in a symbol (0 to 3); -1 takes the smallest result.
        max_mantissa_bits: Largest m that -1 considers.
        tables: Most tables per stream; each chunk is coded with one of them.
    """

    mantissa_bits: int = AUTO
    max_mantissa_bits: int = 2
    tables: int = 8

    name: ClassVar[str] = "histogram_grid"
    slot: ClassVar[str] = "grid"
    mode: ClassVar[Mode | None] = "exact"

    def __post_init__(self) -> None:
        bits = HISTOGRAM_MANTISSA_BITS
        check_setting(self, "mantissa_bits", self.mantissa_bits, AUTO, bits)
        check_setting(self, "max_mantissa_bits", self.max_mantissa_bits, 0, bits)
        check_setting(self, "tables", self.tables, 1, MAX_TABLES)

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Choose m by size, then fit the tables of the symbols and of the planes."""
        if tensor.layout.is_float:
            self._fit_symbols(tensor, model)
        plan_planes(tensor, model, self.tables)

    def _fit_symbols(self, tensor: TensorView, model: TensorModel) -> None:
        layout = tensor.layout
        most = min(self.max_mantissa_bits, layout.mantissa_bits)
        fixed = min(self.mantissa_bits, layout.mantissa_bits)
        candidates = range(most + 1) if self.mantissa_bits == AUTO else (fixed,)
        whole = tensor.histograms.sum(axis=0, keepdims=True)
        finest = symbol_counts(whole, tensor, model, candidates[-1])
        pooled = np.concatenate([_merged(finest, candidates[-1] - m) for m in candidates])
        tables = frequencies.normalise(pooled)
        bits = frequencies.costs(pooled, tables) + 8 * frequencies.serialised_sizes(tables)
        bits -= layout.words * np.array(candidates)  # mantissa bits in symbols are not coded raw
        model.top_bits = candidates[int(np.argmin(bits))]
        counts = symbol_counts(tensor.histograms, tensor, model, model.top_bits)
        model.tables["symbol"], choice, coded = frequencies.cluster(counts, self.tables)
        model.stream_bits["symbol"] = coded
        raw = layout.words * (1 + layout.mantissa_bits - model.top_bits)
        escapes = int(counts[:, model.split.escape_limit :].sum())
        model.estimated_bits += coded + raw + escapes * 8 * model.split.escape_bytes
        regions = np.arange(tensor.chunks) // tensor.chunks_per_region
        model.table_of_chunk["symbol"] = choice[regions]
        model.coders["symbol"] = "rans"

    def write(self, model: TensorModel) -> bytes:
        """Write u8 m, then for every stream but the escapes u8 number of tables and the tables.

        The top bit of the number says that the tables are those of the contexts, in order.
        """
        parts = [struct.pack("<B", model.top_bits)]
        for stream in _modelled(model):
            tables = model.tables.get(stream, _NO_TABLES)
            flag = _CONTEXTUAL if stream in model.contextual else 0
            parts.append(struct.pack("<B", len(tables) | flag))
            parts.append(frequencies.serialise(tables))
        return b"".join(parts)

    def read(self, section: bytes, model: TensorModel) -> None:
        """Restore m and the tables."""
        if not section:
            raise IntegrityError("the grid section is empty")
        model.top_bits, at = section[0], 1
        limit = min(HISTOGRAM_MANTISSA_BITS, model.layout.mantissa_bits)
        if model.top_bits > limit:
            raise IntegrityError("the grid section has an impossible number of mantissa bits")
        for stream in _modelled(model):
            if at >= len(section):
                raise IntegrityError("the grid section is cut short")
            number, contextual, at = section[at] & ~_CONTEXTUAL, section[at] & _CONTEXTUAL, at + 1
            if contextual:
                if number != CONTEXTS or stream not in model.layout.predicted:
                    raise IntegrityError("the grid section has contexts that nothing predicts")
                model.contextual.add(stream)
            if number:
                model.tables[stream], at = frequencies.parse(section, at, number)
        if at != len(section):
            raise IntegrityError("the grid section has a wrong size")

    def encode(self, span: Span, model: TensorModel) -> None:
        """``bin`` and ``fraction`` → ``symbol``, planes and ``top``; other words → planes."""
        layout = model.layout
        if not layout.is_float:
            span.streams |= streams_of(span.words, layout)
            return
        split = model.split
        fraction = span.streams.pop("fraction").view(f"<u{layout.word_bytes}").astype(np.uint64)
        bins = span.streams.pop("bin")
        low_bits = np.uint64(layout.mantissa_bits - model.top_bits)
        top = fraction >> low_bits & np.uint64((1 << model.top_bits) - 1)
        symbols = np.zeros(padded(span.count), np.uint8)
        symbols[: span.count] = bins << np.uint8(model.top_bits) | top.astype(np.uint8)
        span.streams["symbol"] = symbols
        sign = fraction >> np.uint64(layout.mantissa_bits)
        raw = sign << low_bits | fraction & np.uint64((1 << int(low_bits)) - 1)
        for k in range(split.raw_bits // 8):
            span.streams[f"plane{k}"] = (raw >> np.uint64(8 * k)).astype(np.uint8)
        if split.raw_bits % 8:
            span.streams["top"] = (raw >> np.uint64(split.raw_bits // 8 * 8)).astype(np.uint8)

    def decode(self, span: Span, model: TensorModel) -> None:
        """Undo ``encode``."""
        layout = model.layout
        if not layout.is_float:
            words_of(span.streams, layout, span.words)
            return
        split = model.split
        raw = np.zeros(span.count, np.uint64)
        for k in range(split.raw_bits // 8):
            raw |= span.streams.pop(f"plane{k}").astype(np.uint64) << np.uint64(8 * k)
        if split.raw_bits % 8:
            raw |= span.streams.pop("top").astype(np.uint64) << np.uint64(split.raw_bits // 8 * 8)
        symbols = span.streams.pop("symbol")[: span.count]
        low_bits = np.uint64(layout.mantissa_bits - model.top_bits)
        top = symbols.astype(np.uint64) & np.uint64((1 << model.top_bits) - 1)
        sign = raw >> low_bits & np.uint64(1)
        fraction = sign << np.uint64(layout.mantissa_bits) | top << low_bits
        fraction |= raw & np.uint64((1 << int(low_bits)) - 1)
        span.streams["fraction"] = fraction.astype(f"<u{layout.word_bytes}").view(np.uint8)
        span.streams["bin"] = symbols >> np.uint8(model.top_bits)


def _modelled(model: TensorModel) -> list[str]:
    return [stream for stream in model.streams() if stream != "escape"]


def _merged(counts: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Turn counts of symbols (rows, 256) into those with ``bits`` fewer mantissa bits."""
    merged = np.zeros_like(counts)
    merged[:, : ALPHABET >> bits] = counts.reshape(len(counts), -1, 1 << bits).sum(axis=2)
    return merged


def symbol_counts(
    histograms: NDArray[np.int64], tensor: TensorView, model: TensorModel, top_bits: int
) -> NDArray[np.int64]:
    """Turn histograms of top fields (rows, 2**bits) into counts of symbols (rows, 256)."""
    layout = tensor.layout
    exponents, merged = 1 << layout.exponent_bits, 1 << top_bits
    fields = histograms.reshape(len(histograms), exponents, -1)
    window = fields[:, model.base : model.base + model.window]
    escaped = (
        (fields.sum(axis=1) - window.sum(axis=1)).reshape(len(histograms), merged, -1).sum(axis=2)
    )
    inside = window.reshape(len(histograms), model.window * merged, -1).sum(axis=2)
    counts = np.zeros((len(histograms), ALPHABET), np.int64)
    counts[:, : model.window * merged] = inside
    if model.window < exponents:
        limit = model.window * merged
        counts[:, limit : limit + merged] = escaped
    if tensor.sampled:  # every symbol needs a frequency, whether the sample had it or not
        used = (model.window + (model.window < exponents)) * merged
        counts[:, :used] += 1
    return counts
