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
        block_elements: Elements of one quantised block, of which a row has a whole number.
        block_bytes: Bytes of one block; 0 for elements that stand alone.
    """

    name: str
    bits: int
    exponent_bits: int = 0
    mantissa_bits: int = 0
    components: int = 1
    block_elements: int = 1
    block_bytes: int = 0


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

# The quantised types of GGML: elements and bytes per block.
_BLOCKS = {
    "Q1_0": (128, 18),
    "Q2_0": (64, 18),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q8_1": (32, 40),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "Q8_K": (256, 292),
    "IQ1_S": (256, 50),
    "IQ1_M": (256, 56),
    "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74),
    "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98),
    "IQ3_S": (256, 110),
    "IQ4_NL": (32, 18),
    "IQ4_XS": (256, 136),
    "Q4_0_4_4": (32, 18),
    "Q4_0_4_8": (32, 18),
    "Q4_0_8_8": (32, 18),
    "TQ1_0": (256, 54),
    "TQ2_0": (256, 66),
    "MXFP4": (32, 17),
    "NVFP4": (64, 36),
}
BLOCK_DTYPES: dict[str, DType] = {
    name: DType(name, 0, block_elements=elements, block_bytes=size)
    for name, (elements, size) in _BLOCKS.items()
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
        dtype = dtype_named(self.dtype)
        if dtype.block_bytes:
            return self._block_bytes(dtype)
        bits = self.elements * dtype.bits
        if bits % 8:
            raise FormatError(
                f"tensor {quoted(self.name)}: {self.elements} elements of {self.dtype} "
                "do not fill a whole number of bytes"
            )
        if bits // 8 > MAX_BYTES:
            raise self._overflow()
        return bits // 8

    def _block_bytes(self, dtype: DType) -> int:
        row = self.shape[-1] if self.shape else 1
        if row % dtype.block_elements:
            raise FormatError(
                f"tensor {quoted(self.name)}: rows of {row} elements are not whole {dtype.name} "
                f"blocks of {dtype.block_elements}"
            )
        size = self.elements // dtype.block_elements * dtype.block_bytes
        if size > MAX_BYTES:
            raise self._overflow()
        return size

    def _overflow(self) -> FormatError:
        return FormatError(
            f"tensor {quoted(self.name)}: shape {quoted(list(self.shape))} overflows 64-bit sizes"
        )
