"""The tensor types of GGML by their number in a GGUF file."""

from typing import Final

from unweight_codecs.errors import FormatError
from unweight_codecs.tensor_spec import BLOCK_DTYPES, DTYPES, DType

_IDS: Final = {
    name: dtype.ggml_id
    for name, dtype in (DTYPES | BLOCK_DTYPES).items()
    if dtype.ggml_id is not None
}
GGML_TYPES: Final[dict[int, DType]] = {
    number: (DTYPES | BLOCK_DTYPES)[name]
    for name, number in sorted(_IDS.items(), key=lambda item: item[1])
}


def type_id_of(name: str) -> int:
    """Return the id of the type called ``name``."""
    return _IDS[name]


def ggml_type(type_id: int) -> DType:
    """Return the type of an id; raises FormatError, naming the id, when there is none."""
    try:
        return GGML_TYPES[type_id]
    except KeyError:
        raise FormatError(
            f"unknown GGML type {type_id}",
            hint="its block size is not known: if llama.cpp loads the file, upgrade unweight",
        ) from None
