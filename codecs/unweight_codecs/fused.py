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
from unweight_codecs.kernels.base import Bytes
from unweight_codecs.kernels.native import CHUNK16, NativeKernels
from unweight_codecs.kernels.native_levels import LEVEL_CHUNK
from unweight_codecs.model import TensorModel
from unweight_codecs.payload import segments
from unweight_codecs.payload.pack import Pack, locate
from unweight_codecs.payload.segments import BYTE, RANS, RAW
from unweight_codecs.span import Span

_NO_BYTES = np.zeros(0, np.uint8)

# An encoder may stand for the first stages of a pipeline, a decoder for all of them.
_Encoder = Callable[[Span, TensorModel, NativeKernels], bool]
_Decoder = Callable[[Span, TensorModel, NDArray[np.void], NativeKernels], bool]


def encode(stage_types: tuple[type[Stage], ...], span: Span, model: TensorModel) -> int:
    """Encode a span as far as one kernel does; return for how many of the first stages."""
    active = kernels()
    if not isinstance(active, NativeKernels) or not model.layout.is_float:
        return 0
    for stages, encoder in ENCODERS.items():
        if stage_types[: len(stages)] == stages and encoder(span, model, active):
            return len(stages)
    return 0


def decode(stage_types: tuple[type[Stage], ...], span: Span, model: TensorModel) -> bool:
    """Decode a span in place of all stages; False where only they can."""
    active = kernels()
    decoder = DECODERS.get(stage_types)
    if decoder is None or not isinstance(active, NativeKernels) or not model.layout.is_float:
        return False
    return decoder(span, model, locate(span, model), active)


def split(span: Span, model: TensorModel, native: NativeKernels) -> bool:
    """Turn words into symbols, planes, top and escapes."""
    form = model.form
    if form.word_bytes == 2 and "top" not in model.coders:
        parts = native.split16(span.words, span.count, model.chunk_words, form)
        if parts:
            symbols, low, top, span.streams["escape"], span.escape_counts = parts
            span.streams["symbol"] = symbols
            if form.raw_bits >= 8:
                span.streams["plane0"] = low
            if form.raw_bits % 8:
                span.packed["top"] = top
            return True
    symbols, planes, top = native.split(span.words, span.count, form)
    span.streams["symbol"] = symbols
    for k, plane in enumerate(planes):
        span.streams[f"plane{k}"] = plane
    if top.size:
        span.streams["top"] = top
    span.streams["escape"] = native.collect_escapes(span.words, symbols, span.count, form)
    return True


def decode_floats(
    span: Span, model: TensorModel, located: NDArray[np.void], native: NativeKernels
) -> bool:
    """Decode a span of floats, those of 16 bits in one pass where nothing unusual is in the way."""
    if not decode16(span, model, located, native):
        _decode_parts(span, model, located, native)
    return True


def _decode_parts(
    span: Span, model: TensorModel, located: NDArray[np.void], native: NativeKernels
) -> None:
    """Decode floats of any size; raw planes are read where they lie in the coded bytes."""
    form, streams = model.form, model.streams()
    coded = list(streams)[:-1]  # all but the escapes
    for k, stream in enumerate(coded):
        if stream == "symbol" or np.any(located["coder"][:, k] != RAW):
            segments.decode_stream(span, model, stream, streams[stream], located[:, k])
        else:
            segments.check_raw(located[:, k], streams[stream])
    for i, row in enumerate(located):
        first, count = i * model.chunk_words, int(row["count"][0])
        parts = {
            stream: _values(span, stream, streams[stream], row[k], first, native)
            for k, stream in enumerate(coded)
        }
        symbols, top = parts.pop("symbol"), parts.pop("top", _NO_BYTES)
        words = span.words[first * form.word_bytes : (first + count) * form.word_bytes]
        native.join(symbols, list(parts.values()), top, count, form, words)
        escapes = segments.segment_bytes(span, row[-1])
        if row["coder"][-1] != RAW or escapes.size % form.escape_bytes:
            raise IntegrityError("a chunk's escapes are damaged")
        segments.check_escapes(escapes, form)
        native.patch(symbols, count, form, escapes, words)


def _values(
    span: Span, stream: str, bits: int, segment: np.void, first: int, native: NativeKernels
) -> Bytes:
    """Return the values of one stream of the chunk that starts at word ``first``."""
    count = int(segment["count"])
    if stream in span.streams:
        return span.streams[stream][first : first + count]
    data = segments.segment_bytes(span, segment)
    return data if bits == BYTE else native.unpack_bits(data, count, bits)


def decode16(
    span: Span, model: TensorModel, located: NDArray[np.void], native: NativeKernels
) -> bool:
    """Decode a span of 16-bit floats in one pass; False when some chunk needs the general way."""
    form = model.form
    tables = model.classes.tables if model.classes else model.tables.get("symbol")
    streams = list(model.streams())
    if form.word_bytes != 2 or tables is None:
        return False
    raw = [streams.index(name) for name in streams if name.startswith("plane") or name == "top"]
    if np.any(located["coder"][:, 0] != RANS) or np.any(located["coder"][:, 1:] != RAW):
        return False
    for k in raw:
        segments.check_raw(located[:, k], model.streams()[streams[k]])
    for escapes in located[:, -1]:
        segments.check_escapes(segments.segment_bytes(span, escapes), form)
    chunks = np.zeros(len(located), CHUNK16)
    _locate_symbols(chunks, model, located)
    for position, k in enumerate(raw):
        chunks["plane"][:, position] = located["offset"][:, k]
    chunks["escape"] = located["offset"][:, -1]
    chunks["escape_count"] = located["length"][:, -1]
    words = span.words.view("<u2")
    return native.decode16(span.coded, chunks, tables, span.streams.get("class"), form, words)


def decode_levels(
    span: Span, model: TensorModel, located: NDArray[np.void], native: NativeKernels
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
    chunks["kept"] = located["offset"][:, -1]
    chunks["kept_count"] = located["length"][:, -1] // size
    chunks["step"] = bounded.steps[span.first_word // model.chunk_words :][: len(located)]
    native.decode_levels(
        span.coded, chunks, tables, bounded.form, model.spec.dtype, span.prediction, span.words
    )
    return True


def _locate_symbols(
    chunks: NDArray[np.void], model: TensorModel, located: NDArray[np.void]
) -> None:
    """Fill in where the symbols of all chunks are, coded and decoded."""
    for name in ("offset", "length", "table", "count"):
        chunks["symbol"][name] = located[name][:, 0]
    chunks["symbol"]["start"] = np.arange(len(located)) * model.chunk_words


ENCODERS: Final[dict[tuple[type[Stage], ...], _Encoder]] = {(ExponentWindow, HistogramGrid): split}
DECODERS: Final[dict[tuple[type[Stage], ...], _Decoder]] = {
    (ExponentWindow, HistogramGrid, ScaleClasses, BitExact, Pack): decode_floats,
    (ChannelOutlier, LevelGrid, TileSvd, ErrorBound, Pack): decode_levels,
}
