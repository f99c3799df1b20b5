"""Words: the unit in which a tensor's bytes are taken apart."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field

import numpy as np

from unweight_codecs.kernels.operands import CONTEXT_RUN, Bytes
from unweight_codecs.layouts.blocks import Field, fields_of, put_together, take_apart
from unweight_codecs.layouts.contexts import PREDICTED, Predictor
from unweight_codecs.tensor_spec import TensorSpec, dtype_named

HISTOGRAM_MANTISSA_BITS = 3  # mantissa bits a histogram resolves below the exponent: the largest m
_PACKED_WORD_BYTES = {"F6_E2M3": 3, "F6_E3M2": 3}  # four 6-bit values fill three bytes


@dataclass(frozen=True, slots=True)
class WordLayout:
    """Fields of a word.

    Attributes:
        word_bytes: Bytes of a word.
        words: Number of words in the tensor.
        exponent_bits: 0 for words that are modelled byte by byte.
        mantissa_bits: Bits below the exponent; the sign is above it.
        columns: Words per row of the tensor seen as a matrix (its last dimension).
        fields: Fields of a quantised block, which then is a word; empty for other words.
        predicted: Streams of blocks whose values an earlier field predicts.
    """

    word_bytes: int
    words: int
    exponent_bits: int
    mantissa_bits: int
    columns: int
    fields: tuple[Field, ...] = ()
    predicted: Mapping[str, Predictor] = dataclass_field(default_factory=dict)

    @property
    def is_float(self) -> bool:
        """Whether words have an exponent to model."""
        return self.exponent_bits > 0

    def plain_streams(self) -> dict[str, int]:
        """Return the streams of words without an exponent, with the bits of one value of each."""
        return {
            name: bits for name, (bits, _) in _plain_streams(self.word_bytes, self.fields).items()
        }

    def per_word(self, stream: str) -> int:
        """Return how many values of a stream one word gives."""
        return _plain_streams(self.word_bytes, self.fields)[stream][1] if self.fields else 1

    def contexts(self, stream: str, streams: Mapping[str, Bytes]) -> tuple[Bytes, int]:
        """Return contexts of a predicted stream, and how many values share each.

        These are 1 or ``CONTEXT_RUN``. Contexts are computed from streams that come before it.
        """
        contexts, values = self.predicted[stream].contexts(streams), self.per_word(stream)
        return (contexts, CONTEXT_RUN) if values == CONTEXT_RUN else (contexts.repeat(values), 1)

    @property
    def histogram_shift(self) -> int:
        """Lowest bit of the field that a float histogram counts."""
        return max(0, self.mantissa_bits - HISTOGRAM_MANTISSA_BITS)

    @property
    def histogram_bits(self) -> int:
        """Width of that field: the exponent and the top mantissa bits."""
        return self.exponent_bits + min(self.mantissa_bits, HISTOGRAM_MANTISSA_BITS)


@functools.cache
def _plain_streams(word_bytes: int, fields: tuple[Field, ...]) -> dict[str, tuple[int, int]]:
    """Return the bits of a value and the values per word of every stream of plain words."""
    if not fields:
        return {f"plane{k}": (8, 1) for k in range(word_bytes)}
    return {name: (bits, field.count) for field in fields for name, bits in field.streams().items()}


def streams_of(words: Bytes, layout: WordLayout) -> dict[str, Bytes]:
    """Take apart words without an exponent to model: byte planes, or the fields of blocks."""
    rows = words.reshape(-1, layout.word_bytes)
    if layout.fields:
        return take_apart(rows, layout.fields)
    planes = (np.ascontiguousarray(rows[:, k]) for k in range(layout.word_bytes))
    return {f"plane{k}": plane for k, plane in enumerate(planes)}


def words_of(streams: dict[str, Bytes], layout: WordLayout, words: Bytes) -> None:
    """Undo ``streams_of`` into ``words``."""
    rows = words.reshape(-1, layout.word_bytes)
    if layout.fields:
        put_together(streams, layout.fields, rows)
        return
    for k in range(layout.word_bytes):
        rows[:, k] = streams[f"plane{k}"]


def layout_of(spec: TensorSpec) -> WordLayout:
    """Return the layout of a tensor's bytes."""
    dtype = dtype_named(spec.dtype)
    nbytes = spec.nbytes
    columns = spec.shape[-1] if spec.shape else 1
    if dtype.exponent_bits:
        word_bytes = dtype.bits // 8 // dtype.components
        return WordLayout(
            word_bytes,
            nbytes // word_bytes,
            dtype.exponent_bits,
            dtype.mantissa_bits,
            columns * dtype.components,
        )
    if dtype.block_bytes:
        fields = fields_of(dtype.name, dtype.block_bytes)
        blocks = nbytes // dtype.block_bytes
        predicted = PREDICTED.get(dtype.name, {})
        return WordLayout(dtype.block_bytes, blocks, 0, 0, 0, fields, predicted)
    word_bytes = _PACKED_WORD_BYTES.get(spec.dtype, max(1, dtype.bits // 8))
    return WordLayout(word_bytes, nbytes // word_bytes, 0, 0, 0)
