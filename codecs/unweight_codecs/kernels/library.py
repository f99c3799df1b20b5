"""The compiled kernels: where they lie, and what their functions take."""

import ctypes
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.kernels.operands import SLOTS

LIBRARY_STEM: Final = "_native"
LIBRARY_SUFFIXES: Final = (".so", ".dylib", ".dll")
INSTRUCTION_SETS: Final = ("avx512", "avx2", "portable")  # best first
# What one table takes in the form that decoders look symbols up in (src/unweight.h).
SLOTS_BYTES: Final = 4 * SLOTS

_P, _U32, _U64, _I64, _INT, _DOUBLE, _FLOAT = (
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_int,
    ctypes.c_double,
    ctypes.c_float,
)
_SIGNATURES: Final = {
    "uw_supported": (_INT, [ctypes.c_char_p]),
    "uw_select": (_INT, [ctypes.c_char_p]),
    "uw_histogram": (_INT, [_P, _U64, _U32, _U32, _U32, _U64, _P, _P]),
    "uw_normalise": (None, [_P, _U32, _P]),
    "uw_lloyd": (_I64, [_P, _U32, _P, _P, _P, _P]),
    "uw_serialise": (_I64, [_P, _U32, _P]),
    "uw_parse": (_I64, [_P, _U64, _U32, _P]),
    "uw_split": (None, [_P, _U64, _P, _P, _P, _U64, _P]),
    "uw_split16": (_I64, [_P, _U64, _U64, _P, _P, _P, _P, _P, _P]),
    "uw_join": (None, [_P, _P, _P, _U64, _P, _P]),
    "uw_collect_escapes": (_U64, [_P, _P, _U64, _P, _P]),
    "uw_patch": (_INT, [_P, _U64, _P, _P, _U64, _P]),
    "uw_take_field": (None, [_P, _U64, _U64, _U32, _U32, _U32, _P]),
    "uw_put_field": (None, [_P, _U64, _U64, _U32, _U32, _U32, _P]),
    "uw_zero_points": (None, [_P, _U64, _DOUBLE, _DOUBLE, _U32, _P]),
    "uw_quantise": (None, [_P, _U64, _P, _P, _FLOAT, _P, _P, _P]),
    "uw_find_nearest": (None, [_P, _U64, _P, _P, _FLOAT, _P, _P, _P]),
    "uw_squared_error": (_INT, [_P, _P, _U64, _U32, _P]),
    "uw_dequantise": (_INT, [_P, _P, _U64, _P, _FLOAT, _P, _P, _U64, _P]),
    "uw_predict": (None, [_P, _U64, _U64, _P]),
    "uw_decode_levels": (_I64, [_P, _P, _U32, _P, _U32, _P, _P, _P, _U64, _P, _P]),
    "uw_pack_bits": (None, [_P, _U64, _U32, _P]),
    "uw_unpack_bits": (None, [_P, _U64, _U64, _U32, _P]),
    "uw_rans_encode": (_I64, [_P, _P, _U32, _P, _U32, _P, _U32, _P, _P]),
    "uw_rans_decode": (_I64, [_P, _P, _U32, _P, _U32, _P, _U32, _P, _P]),
    "uw_decode16": (_I64, [_P, _P, _U32, _P, _U32, _P, _P, _P, _P]),
}


def find_library() -> Path | None:
    """Return the compiled library beside this module; None when it was not built."""
    for suffix in LIBRARY_SUFFIXES:
        path = Path(__file__).with_name(LIBRARY_STEM + suffix)
        if path.exists():
            return path
    return None


def load_library(path: Path) -> ctypes.CDLL:
    """Load the compiled library; raises OSError when the system cannot."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def supported(library: ctypes.CDLL, name: str) -> bool:
    """Whether this processor runs the kernels called ``name``."""
    return bool(library.uw_supported(name.encode()))


def pointer(array: NDArray[np.generic] | None) -> int | None:
    """Return where the elements of an array lie, for an argument that may be NULL."""
    return None if array is None else array.ctypes.data
