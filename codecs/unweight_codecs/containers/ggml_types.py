"""The tensor types of GGML as data: how many elements a block holds and how many bytes it takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from unweight_codecs.errors import FormatError, quoted
from unweight_codecs.tensor_spec import MAX_BYTES


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One tensor type.

    Attributes:
        id: Number in the tensor table of a GGUF file.
        name: Name as GGML writes it, e.g. ``"Q4_K"``.
        block_elements: Elements of one block; a row consists of whole blocks.
        block_bytes: Storage bytes of one block.
    """

    id: int
    name: str
    block_elements: int
    block_bytes: int

    def nbytes(self, shape: Sequence[int]) -> int:
        """Return the bytes of a tensor whose last extent is the row; shape ``()`` is one element.

        Raises FormatError when a row ends inside a block or the size is impossible.
        """
        row = shape[-1] if shape else 1
        if row % self.block_elements:
            raise FormatError(
                f"rows of {row} elements are not whole {self.name} blocks of {self.block_elements}"
            )
        size = self.block_bytes
        for extent in (*shape[:-1], row // self.block_elements):
            size *= extent
            # Checked at each step: what overflows must not pass because a later extent is 0.
            if size > MAX_BYTES:
                raise FormatError(f"shape {quoted(list(shape))} overflows 64-bit sizes")
        return size


# Some were dropped from GGML again, but files with them remain. Ids are never used twice.
_TYPES: Final = (
    GgmlType(0, "F32", 1, 4),
    GgmlType(1, "F16", 1, 2),
    GgmlType(2, "Q4_0", 32, 18),
    GgmlType(3, "Q4_1", 32, 20),
    GgmlType(6, "Q5_0", 32, 22),
    GgmlType(7, "Q5_1", 32, 24),
    GgmlType(8, "Q8_0", 32, 34),
    GgmlType(9, "Q8_1", 32, 40),
    GgmlType(10, "Q2_K", 256, 84),
    GgmlType(11, "Q3_K", 256, 110),
    GgmlType(12, "Q4_K", 256, 144),
    GgmlType(13, "Q5_K", 256, 176),
    GgmlType(14, "Q6_K", 256, 210),
    GgmlType(15, "Q8_K", 256, 292),
    GgmlType(16, "IQ2_XXS", 256, 66),
    GgmlType(17, "IQ2_XS", 256, 74),
    GgmlType(18, "IQ3_XXS", 256, 98),
    GgmlType(19, "IQ1_S", 256, 50),
    GgmlType(20, "IQ4_NL", 32, 18),
    GgmlType(21, "IQ3_S", 256, 110),
    GgmlType(22, "IQ2_S", 256, 82),
    GgmlType(23, "IQ4_XS", 256, 136),
    GgmlType(24, "I8", 1, 1),
    GgmlType(25, "I16", 1, 2),
    GgmlType(26, "I32", 1, 4),
    GgmlType(27, "I64", 1, 8),
    GgmlType(28, "F64", 1, 8),
    GgmlType(29, "IQ1_M", 256, 56),
    GgmlType(30, "BF16", 1, 2),
    GgmlType(31, "Q4_0_4_4", 32, 18),
    GgmlType(32, "Q4_0_4_8", 32, 18),
    GgmlType(33, "Q4_0_8_8", 32, 18),
    GgmlType(34, "TQ1_0", 256, 54),
    GgmlType(35, "TQ2_0", 256, 66),
    GgmlType(39, "MXFP4", 32, 17),
    GgmlType(40, "NVFP4", 64, 36),
    GgmlType(41, "Q1_0", 128, 18),
    GgmlType(42, "Q2_0", 64, 18),
)
GGML_TYPES: Final[dict[int, GgmlType]] = {entry.id: entry for entry in _TYPES}


def ggml_type(type_id: int) -> GgmlType:
    """Return the type of an id; raises FormatError, naming the id, when there is none."""
    try:
        return GGML_TYPES[type_id]
    except KeyError:
        raise FormatError(
            f"unknown GGML type {type_id}",
            hint="its block size is not known: if llama.cpp loads the file, upgrade unweight",
        ) from None
