"""Decoding on a device against the processor: all dtypes and presets, real weights, damage."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.dataset import Tensor
from benchmarks.gpu.cases import Cases, Line, Sizes
from benchmarks.gpu.data import Layer, coded, in_chunks, whole
from unweight_codecs.accelerators import SPAN_CHUNKS, CodedSpan
from unweight_codecs.bounded.float_words import FLOATS, words_of_values
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.payload.directory import parse_directory
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import BOUNDED, DEFAULT, PRESETS
from unweight_codecs.span import Span
from unweight_codecs.tensor_codec import decode_tensor, spans_of
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.decoding.obstacles import span_obstacle
from unweight_gpu.decoding.transfer import PendingBatch, SpanRequest, Transfer
from unweight_gpu.device.interface import StreamingDevice

EPSILONS: Final = (0.005, 0.1)
_PATTERNS: Final = 1 << 16  # all of 16 bits


def lossless(device: StreamingDevice, sizes: Sizes) -> Line:
    """Decode every dtype, coded with every preset; a part of the words has any pattern of bits."""
    cases, transfer = Cases("decoding"), Transfer(device)
    for dtype in sizes.dtypes:
        tensor = _tensor(dtype, sizes.shape, patterns=True)
        for name, pipeline in PRESETS.items():
            _compare(cases, transfer, f"{dtype}, {name}", _shorter(pipeline, sizes), tensor)
    return cases.line()


def bounded(device: StreamingDevice, sizes: Sizes) -> Line:
    """Decode levels: what the processor decodes is what is right."""
    cases, transfer = Cases("decoding within an error bound"), Transfer(device)
    for dtype in FLOATS:
        tensor = _tensor(dtype, sizes.shape, patterns=False)
        for name, pipeline in BOUNDED.items():
            for epsilon in EPSILONS:
                case, shorter = f"{dtype}, {name}, {epsilon}", _shorter(pipeline, sizes)
                _compare(cases, transfer, case, shorter, tensor, epsilon)
    return cases.line()


def real(device: StreamingDevice, layer: Layer) -> Line:
    """Decode the matrices of a model."""
    cases, transfer = Cases(f"real weights: {layer.name}"), Transfer(device)
    for tensor in layer.tensors():
        _compare(cases, transfer, tensor[0].name, PRESETS[DEFAULT], tensor)
    return cases.line()


def damage(device: StreamingDevice, sizes: Sizes) -> Line:
    """Change one byte of a chunk's symbols: that chunk is refused, and no other."""
    cases, transfer = Cases("damaged chunks"), Transfer(device)
    for name, pipeline in PRESETS.items():
        shorter = _shorter(pipeline, sizes)
        (found,) = coded(shorter, [_tensor("BF16", sizes.shape, patterns=False)])
        if found is None:
            cases.stored += 1
            continue
        span = whole(shorter, found)
        chunk = len(span.directory) // 2
        request = SpanRequest(replace(span, read=_damaging(span, chunk)))
        buffer = transfer.buffers[0]
        pending = transfer.start(buffer, [request], download=True)
        buffer.queue.wait()
        refused = np.flatnonzero(pending.status.view(np.uint32)).tolist()
        cases.require(f"{name}: the chunks that are refused", refused == [chunk])
        cases.require(f"{name}: the checksum", _is_refused(transfer, pending))
    return cases.line()


def _compare(
    cases: Cases,
    transfer: Transfer,
    case: str,
    pipeline: Pipeline,
    tensor: Tensor,
    epsilon: float = 0.0,
) -> None:
    """Decode a tensor on both sides. Tensors that would be stored are counted as such."""
    (found,) = coded(pipeline, [tensor], epsilon)
    if found is None:
        cases.stored += 1
        return
    spans = spans_of(pipeline, found, SPAN_CHUNKS)
    if any(map(span_obstacle, spans)):
        raise IntegrityError(f"{cases.name}: {case}: the device does not decode it")
    expected = tensor[1] if not epsilon else np.concatenate(decode_tensor(pipeline, found))
    pending = transfer.start(transfer.buffers[0], [SpanRequest(s) for s in spans], download=True)
    transfer.finish(pending)
    words = [pending.words[pending.words_at(number)] for number in range(len(spans))]
    cases.equal(case, np.concatenate(words), expected)


def _shorter(pipeline: Pipeline, sizes: Sizes) -> Pipeline:
    return in_chunks(pipeline, sizes.chunk_log2)


def _tensor(dtype: str, shape: tuple[int, int], *, patterns: bool) -> Tensor:
    """Return a tensor whose rows differ in scale, and which has infinities and zeros if it can."""
    rng = np.random.default_rng(20240229)
    spec = TensorSpec("t", dtype, shape)
    values = rng.standard_normal(shape) * np.exp2(rng.normal(0, 1, (shape[0], 1)))
    values[0, :4] = 0.0, -0.0, np.inf, -np.inf
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            words = words_of_values(values.astype(np.float32).reshape(-1), dtype)
    elif dtype == "F64":
        words = values.astype("<f8").reshape(-1).view(np.uint8)
    elif dtype.startswith("F8"):
        words = _eight_bits(values.astype("<f2").reshape(-1).view("<u2"), dtype)
    else:
        narrow = np.clip(rng.normal(0, 20, spec.nbytes), -128, 127)
        words = narrow.astype(np.int8).view(np.uint8)
    if patterns:
        _put_patterns(words, spec.nbytes // (shape[0] * shape[1]), rng)
    return spec, words


def _eight_bits(halves: NDArray[np.uint16], dtype: str) -> Bytes:
    """Return F16 words cut to eight bits: E5M2 is their upper half, E4M3 has another bias."""
    if dtype == "F8_E5M2":
        return (halves >> 8).astype(np.uint8)
    magnitudes = (halves & 0x7FFF).astype(np.int32) - (8 << 10) >> 7
    octets: Bytes = (np.clip(magnitudes, 0, 0x7E) | halves >> 8 & 0x80).astype(np.uint8)
    return octets


def _put_patterns(words: Bytes, size: int, rng: np.random.Generator) -> None:
    """Overwrite a 32nd of the words: with all there are of 16 bits if they fit, or random ones."""
    number = words.size // size // 32
    if size == 2 and number >= _PATTERNS:
        words[: 2 * _PATTERNS] = np.arange(_PATTERNS, dtype="<u2").view(np.uint8)
    else:
        words[: number * size] = rng.integers(0, 256, number * size, np.uint8)


def _damaging(coded: CodedSpan, chunk: int) -> Callable[[Bytes], Span]:
    """Return what reads a span and changes a byte in the middle of a chunk's symbols."""

    def read(buffer: Bytes) -> Span:
        span = coded.read(buffer)
        symbols = parse_directory(span, coded.model)[
            chunk, list(coded.model.streams()).index("symbol")
        ]
        span.coded[int(symbols["offset"]) + int(symbols["length"]) // 2] ^= 1
        return span

    return read


def _is_refused(transfer: Transfer, pending: PendingBatch) -> bool:
    try:
        transfer.finish(pending)
    except IntegrityError:
        return True
    return False
