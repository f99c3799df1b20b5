"""Kernels that do the work of several stages in one pass over the words.

The stages define the result; a fused kernel gives the same, faster. Each stands for stages of
exactly the types that it names, so that another stage in their place, one of this library or a
plugin's, is never passed over. Parity is tested for every dtype.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.channel_outlier import ChannelOutlier
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.tile_svd import TileSvd
from unweight_codecs.codec import Stage
from unweight_codecs.errors import IntegrityError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels import kernels
from unweight_codecs.kernels.operands import CHUNK16, LEVEL_CHUNK, Bytes
from unweight_codecs.kernels.protocol import Kernels
from unweight_codecs.model import TensorModel
from unweight_codecs.payload import segments
from unweight_codecs.payload.pack import Pack, locate
from unweight_codecs.payload.segments import BYTE, RANS, RAW
from unweight_codecs.span import Span

_NO_BYTES = np.zeros(0, np.uint8)

# An encoder may stand for the first stages of a pipeline, a decoder for all of them.
_Encoder = Callable[[Span, TensorModel, Kernels], bool]
_Decoder = Callable[[Span, TensorModel, NDArray[np.void], Kernels], bool]


def encode(stage_types: tuple[type[Stage], ...], span: Span, model: TensorModel) -> int:
    """Encode a span as far as one kernel does; return for how many of the first stages."""
    if not model.layout.is_float:
        return 0
    for stages, encoder in ENCODERS.items():
        if stage_types[: len(stages)] == stages and encoder(span, model, kernels()):
            return len(stages)
    return 0


def decode(stage_types: tuple[type[Stage], ...], span: Span, model: TensorModel) -> bool:
    """Decode a span in place of all stages; False where only they can."""
    decoder = DECODERS.get(stage_types)
    if decoder is None or not model.layout.is_float:
        return False
    return decoder(span, model, locate(span, model), kernels())


def split_floats(span: Span, model: TensorModel, kernel: Kernels) -> bool:
    """Turn words into symbols, planes, top and escapes."""
    split = model.split
    if split.word_bytes == 2 and "top" not in model.coders:
        parts = kernel.split16(span.words, span.count, model.chunk_words, split)
        if parts:
            span.streams |= {"symbol": parts.symbols, "escape": parts.escapes}
            span.escape_counts = parts.escape_counts
            if split.raw_bits >= 8:
                span.streams["plane0"] = parts.low
            if split.raw_bits % 8:
                span.packed["top"] = parts.top
            return True
    symbols, planes, top = kernel.split(span.words, span.count, split)
    span.streams["symbol"] = symbols
    for k, plane in enumerate(planes):
        span.streams[f"plane{k}"] = plane
    if top.size:
        span.streams["top"] = top
    span.streams["escape"] = kernel.collect_escapes(span.words, symbols, span.count, split)
    return True


def decode_floats(
    span: Span, model: TensorModel, located: NDArray[np.void], kernel: Kernels
) -> bool:
    """Decode a span of floats, those of 16 bits in one pass where nothing unusual is in the way."""
    if not decode16(span, model, located, kernel):
        _decode_parts(span, model, located, kernel)
    return True


def _decode_parts(
    span: Span, model: TensorModel, located: NDArray[np.void], kernel: Kernels
) -> None:
    """Decode floats of any size; raw planes are read where they lie in the coded bytes."""
    split, streams = model.split, model.streams()
    coded = list(streams)[:-1]  # all but the escapes
    for k, stream in enumerate(coded):
        if stream == "symbol" or np.any(located["coder"][:, k] != RAW):
            segments.decode_stream(span, model, stream, streams[stream], located[:, k])
        else:
            segments.check_raw(located[:, k], streams[stream])
    for i, row in enumerate(located):
        first, count = i * model.chunk_words, int(row["count"][0])
        parts = {
            stream: _values(span, stream, streams[stream], row[k], first, kernel)
            for k, stream in enumerate(coded)
        }
        symbols, top = parts.pop("symbol"), parts.pop("top", _NO_BYTES)
        words = span.words[first * split.word_bytes : (first + count) * split.word_bytes]
        kernel.join(symbols, list(parts.values()), top, count, split, words)
        escapes = segments.segment_bytes(span, row[-1])
        if row["coder"][-1] != RAW or escapes.size % split.escape_bytes:
            raise IntegrityError("a chunk's escapes are damaged")
        segments.check_escapes(escapes, split)
        kernel.patch(symbols, count, split, escapes, words)


def _values(
    span: Span, stream: str, bits: int, segment: np.void, first: int, kernel: Kernels
) -> Bytes:
    """Return the values of one stream of the chunk that starts at word ``first``."""
    count = int(segment["count"])
    if stream in span.streams:
        return span.streams[stream][first : first + count]
    data = segments.segment_bytes(span, segment)
    return data if bits == BYTE else kernel.unpack_bits(data, count, bits)


def decode16(span: Span, model: TensorModel, located: NDArray[np.void], kernel: Kernels) -> bool:
    """Decode a span of 16-bit floats in one pass; False when some chunk needs the general way."""
    split = model.split
    tables = model.context_map.tables if model.context_map else model.tables.get("symbol")
    streams = list(model.streams())
    if split.word_bytes != 2 or tables is None:
        return False
    raw = [streams.index(name) for name in streams if name.startswith("plane") or name == "top"]
    if np.any(located["coder"][:, 0] != RANS) or np.any(located["coder"][:, 1:] != RAW):
        return False
    for k in raw:
        segments.check_raw(located[:, k], model.streams()[streams[k]])
    for escapes in located[:, -1]:
        segments.check_escapes(segments.segment_bytes(span, escapes), split)
    chunks = np.zeros(len(located), CHUNK16)
    _locate_symbols(chunks, model, located)
    for position, k in enumerate(raw):
        chunks["plane"][:, position] = located["offset"][:, k]
    chunks["escape"] = located["offset"][:, -1]
    chunks["escape_count"] = located["length"][:, -1]
    contexts = span.streams.get("context")
    return kernel.decode16(span.coded, chunks, tables, contexts, split, span.words)


def decode_levels(
    span: Span, model: TensorModel, located: NDArray[np.void], kernel: Kernels
) -> bool:
    """Decode a span of words on levels; False where a stream is not coded as is usual."""
    bounded, tables, size = model.on_levels, model.tables.get("symbol"), model.layout.word_bytes
    usual = np.all(located["coder"][:, 0] == RANS) and np.all(located["coder"][:, 1:] == RAW)
    if tables is None or not usual:
        return False
    if np.any(located["length"][:, -1] % size):
        raise IntegrityError("a chunk's escapes are damaged")
    chunks = np.zeros(len(located), LEVEL_CHUNK)
    _locate_symbols(chunks, model, located)
    if bounded.form.low_bits:
        segments.check_raw(located[:, 1], bounded.form.low_bits)
        chunks["low"] = located["offset"][:, 1]
    chunks["escape"] = located["offset"][:, -1]
    chunks["escape_count"] = located["length"][:, -1] // size
    chunks["step"] = bounded.steps[span.first_word // model.chunk_words :][: len(located)]
    dtype = model.spec.dtype
    return kernel.decode_levels(
        span.coded, chunks, tables, bounded.form, dtype, span.prediction, span.words
    )


def _locate_symbols(
    chunks: NDArray[np.void], model: TensorModel, located: NDArray[np.void]
) -> None:
    """Fill in where the symbols of all chunks are, coded and decoded."""
    for name in ("offset", "length", "table", "count"):
        chunks["symbol"][name] = located[name][:, 0]
    chunks["symbol"]["start"] = np.arange(len(located)) * model.chunk_words


ENCODERS: Final[dict[tuple[type[Stage], ...], _Encoder]] = {
    (ExponentWindow, HistogramGrid): split_floats
}
DECODERS: Final[dict[tuple[type[Stage], ...], _Decoder]] = {
    (ExponentWindow, HistogramGrid, ScaleClasses, BitExact, Pack): decode_floats,
    (ChannelOutlier, LevelGrid, TileSvd, ErrorBound, Pack): decode_levels,
}
