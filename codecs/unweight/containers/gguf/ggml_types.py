"""The tensor types of GGML as data: how many elements a block holds and how many bytes it takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from unweight_codecs.errors import FormatError, quoted
from unweight_codecs.tensor_spec import MAX_BYTES, dtype_named


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
_NAMES: Final = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
    42: "Q2_0",
}


def _described(number: int, name: str) -> GgmlType:
    dtype = dtype_named(name)
    return GgmlType(number, name, dtype.block_elements, dtype.block_bytes or dtype.bits // 8)


GGML_TYPES: Final[dict[int, GgmlType]] = {n: _described(n, name) for n, name in _NAMES.items()}
_IDS: Final = {name: number for number, name in _NAMES.items()}


def type_id_of(name: str) -> int:
    """Return the id of the type called ``name``."""
    return _IDS[name]


def ggml_type(type_id: int) -> GgmlType:
    """Return the type of an id; raises FormatError, naming the id, when there is none."""
    try:
        return GGML_TYPES[type_id]
    except KeyError:
        raise FormatError(
            f"unknown GGML type {type_id}",
            hint="its block size is not known: if llama.cpp loads the file, upgrade unweight",
        ) from None
