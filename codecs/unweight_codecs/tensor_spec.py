"""What a tensor is: its dtype, its shape and how many bytes those must take."""

from collections.abc import Sequence
from dataclasses import dataclass

from unweight_codecs.block_types import BLOCK_TYPES, Field
from unweight_codecs.errors import FormatError, quoted

MAX_BYTES = 1 << 62  # anything larger is no real tensor and would overflow 64-bit offsets


@dataclass(frozen=True, slots=True)
class DType:
    """One element type of a container.

    Attributes:
        name: The container's own spelling, e.g. ``"BF16"``.
        bits: Storage bits of one element; sub-byte types are packed.
        exponent_bits: Width of the exponent field; 0 where there is none worth modelling.
        mantissa_bits: Width of the mantissa field of a float, otherwise 0.
        components: Floats per element (2 for complex numbers).
        block_elements: Elements of one quantised block, of which a row has a whole number.
        block_bytes: Bytes of one block; 0 for elements that stand alone.
        fields: Fields of one block; none for elements that stand alone.
        ggml_id: Number of the type in GGML; None where GGML does not have it.
    """

    name: str
    bits: int
    exponent_bits: int = 0
    mantissa_bits: int = 0
    components: int = 1
    block_elements: int = 1
    block_bytes: int = 0
    fields: tuple[Field, ...] = ()
    ggml_id: int | None = None

    def nbytes(self, shape: Sequence[int]) -> int:
        """Return the bytes of a tensor whose last extent is the row; shape ``()`` is one element.

        Raises FormatError for half bytes, a row that ends inside a block and impossible sizes.
        """
        row = shape[-1] if shape else 1
        if row % self.block_elements:
            raise FormatError(
                f"rows of {row} elements are not whole {self.name} blocks of {self.block_elements}"
            )
        elements = _elements(shape)
        if self.block_bytes:
            size = elements // self.block_elements * self.block_bytes
        else:
            size, half = divmod(elements * self.bits, 8)
            if half:
                raise FormatError(
                    f"{elements} elements of {self.name} do not fill a whole number of bytes"
                )
        if size > MAX_BYTES:
            raise _overflow(shape)
        return size


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
        # Checked at each step: the whole product of a hostile shape could take hours, and what
        # overflows must not pass because a later extent is 0.
        if count > MAX_BYTES:
            raise _overflow(shape)
    return count


def _overflow(shape: Sequence[int]) -> FormatError:
    return FormatError(f"shape {quoted(list(shape))} overflows 64-bit sizes")


_DTYPES = (
    DType("F64", 64, exponent_bits=11, mantissa_bits=52, ggml_id=28),
    DType("F32", 32, exponent_bits=8, mantissa_bits=23, ggml_id=0),
    DType("F16", 16, exponent_bits=5, mantissa_bits=10, ggml_id=1),
    DType("BF16", 16, exponent_bits=8, mantissa_bits=7, ggml_id=30),
    DType("C64", 64, exponent_bits=8, mantissa_bits=23, components=2),
    DType("F8_E4M3", 8, exponent_bits=4, mantissa_bits=3),
    DType("F8_E5M2", 8, exponent_bits=5, mantissa_bits=2),
    DType("F8_E8M0", 8),
    DType("F8_E4M3FNUZ", 8, exponent_bits=4, mantissa_bits=3),
    DType("F8_E5M2FNUZ", 8, exponent_bits=5, mantissa_bits=2),
    DType("F6_E2M3", 6),
    DType("F6_E3M2", 6),
    DType("F4", 4),
    DType("I64", 64, ggml_id=27),
    DType("U64", 64),
    DType("I32", 32, ggml_id=26),
    DType("U32", 32),
    DType("I16", 16, ggml_id=25),
    DType("U16", 16),
    DType("I8", 8, ggml_id=24),
    DType("U8", 8),
    DType("BOOL", 8),
)
DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _DTYPES}

BLOCK_DTYPES: dict[str, DType] = {
    row.name: DType(
        row.name,
        0,
        block_elements=row.elements,
        block_bytes=row.bytes,
        fields=row.fields,
        ggml_id=row.ggml_id,
    )
    for row in BLOCK_TYPES
}


def dtype_named(name: str) -> DType:
    """Return the dtype called ``name``; raises FormatError when there is none."""
    try:
        return DTYPES.get(name) or BLOCK_DTYPES[name]
    except KeyError:
        raise FormatError(
            f"unknown dtype {name!r}", hint=f"known dtypes: {', '.join(DTYPES)}"
        ) from None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, dtype and shape of a tensor. Shape ``()`` means one element."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of logical elements; raises FormatError when it is impossibly large."""
        try:
            return _elements(self.shape)
        except FormatError as error:
            raise self._located(error) from None

    @property
    def nbytes(self) -> int:
        """Bytes the elements take; raises FormatError as ``DType.nbytes`` does."""
        dtype = dtype_named(self.dtype)
        try:
            return dtype.nbytes(self.shape)
        except FormatError as error:
            raise self._located(error) from None

    def _located(self, error: FormatError) -> FormatError:
        return FormatError(f"tensor {quoted(self.name)}: {error.message}", hint=error.hint)
