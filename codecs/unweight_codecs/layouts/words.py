"""Words: the unit in which a tensor's bytes are taken apart."""

from dataclasses import dataclass

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
    """

    word_bytes: int
    words: int
    exponent_bits: int
    mantissa_bits: int
    columns: int

    @property
    def is_float(self) -> bool:
        """Whether words have an exponent to model."""
        return self.exponent_bits > 0

    @property
    def histogram_shift(self) -> int:
        """Lowest bit of the field that a float histogram counts."""
        return max(0, self.mantissa_bits - HISTOGRAM_MANTISSA_BITS)

    @property
    def histogram_bits(self) -> int:
        """Width of that field: the exponent and the top mantissa bits."""
        return self.exponent_bits + min(self.mantissa_bits, HISTOGRAM_MANTISSA_BITS)


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
    word_bytes = _PACKED_WORD_BYTES.get(spec.dtype, max(1, dtype.bits // 8))
    if nbytes % word_bytes:
        word_bytes = 1
    return WordLayout(word_bytes, nbytes // word_bytes, 0, 0, 0)
