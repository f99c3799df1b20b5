"""What a tensor is: its dtype, its shape and how many bytes those must take."""

from dataclasses import dataclass

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
    """

    name: str
    bits: int
    exponent_bits: int = 0
    mantissa_bits: int = 0
    components: int = 1


_DTYPES = (
    DType("F64", 64, exponent_bits=11, mantissa_bits=52),
    DType("F32", 32, exponent_bits=8, mantissa_bits=23),
    DType("F16", 16, exponent_bits=5, mantissa_bits=10),
    DType("BF16", 16, exponent_bits=8, mantissa_bits=7),
    DType("C64", 64, exponent_bits=8, mantissa_bits=23, components=2),
    DType("F8_E4M3", 8, exponent_bits=4, mantissa_bits=3),
    DType("F8_E5M2", 8, exponent_bits=5, mantissa_bits=2),
    DType("F8_E8M0", 8),
    DType("F8_E4M3FNUZ", 8, exponent_bits=4, mantissa_bits=3),
    DType("F8_E5M2FNUZ", 8, exponent_bits=5, mantissa_bits=2),
    DType("F6_E2M3", 6),
    DType("F6_E3M2", 6),
    DType("F4", 4),
    *(DType(f"{sign}{bits}", bits) for bits in (64, 32, 16, 8) for sign in "IU"),
    DType("BOOL", 8),
)
DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _DTYPES}


def dtype_named(name: str) -> DType:
    """Return the dtype called ``name``; raises FormatError when there is none."""
    try:
        return DTYPES[name]
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
        count = 1
        for extent in self.shape:
            count *= extent
            # Checked at each step: the whole product of a hostile shape could take hours.
            if count > MAX_BYTES:
                raise self._overflow()
        return count

    @property
    def nbytes(self) -> int:
        """Bytes the elements take; raises FormatError for half bytes and impossible sizes."""
        bits = self.elements * dtype_named(self.dtype).bits
        if bits % 8:
            raise FormatError(
                f"tensor {quoted(self.name)}: {self.elements} elements of {self.dtype} "
                "do not fill a whole number of bytes"
            )
        if bits // 8 > MAX_BYTES:
            raise self._overflow()
        return bits // 8

    def _overflow(self) -> FormatError:
        return FormatError(
            f"tensor {quoted(self.name)}: shape {quoted(list(self.shape))} overflows 64-bit sizes"
        )
