"""The compiled kernels: where they lie, what they take, and whether they fit this binding."""

import ctypes
from pathlib import Path
from typing import Final

import numpy as np

from unweight_codecs.kernels.native.structures import ArrayPointer, Factors, Levels, SplitSpec
from unweight_codecs.kernels.operands import (
    ALPHABET,
    CHUNK16,
    CONTEXT_RUN,
    COST_BITS,
    GROUP,
    LANES,
    LEVEL_CHUNK,
    LLOYD_ITERATIONS,
    MAX_RANK,
    MAX_TABLE_BYTES,
    SAMPLING_STRIDE,
    SEGMENT,
    SLOTS,
    STATE_LOW,
)

LIBRARY_STEM: Final = "_native"
LIBRARY_SUFFIXES: Final = (".so", ".dylib", ".dll")
INSTRUCTION_SETS: Final = ("avx512", "avx2", "portable")  # best first

# Scratch memory of the coders in 32-bit words: a table in the form in which symbols are looked up,
# and whether it was built.
DECODER_ROOM: Final = SLOTS + 1
ENCODER_ROOM: Final = 3 * ALPHABET + 16 + 1
HISTOGRAM_COUNTERS: Final = 4 << 14  # four sets of counters for 14 bits
SPARE: Final = 64  # bytes that a vector store may write beyond the end

# Changes with the functions of the library and the meaning of their arguments (src/unweight.h).
ABI: Final = 1
# In the order of ``uw_abi`` (src/abi.c): what both sides repeat by hand.
FACTS: Final = {
    "the ABI number": ABI,
    "the size of a segment": SEGMENT.itemsize,
    "the size of a chunk of 16-bit floats": CHUNK16.itemsize,
    "the size of a chunk on levels": LEVEL_CHUNK.itemsize,
    "the size of a split": ctypes.sizeof(SplitSpec),
    "the size of levels": ctypes.sizeof(Levels),
    "the size of factors": ctypes.sizeof(Factors),
    "the number of lanes": LANES,
    "the symbols of a group": GROUP,
    "the symbols that share a context": CONTEXT_RUN,
    "the slots of a table": SLOTS,
    "the lowest state": STATE_LOW,
    "the size of the alphabet": ALPHABET,
    "the largest rank": MAX_RANK,
    "the spare bytes": SPARE,
    "the room of a decoding table": DECODER_ROOM,
    "the room of an encoding table": ENCODER_ROOM,
    "the bytes of a serialised table": MAX_TABLE_BYTES,
    "the bits of a cost": COST_BITS,
    "the iterations of Lloyd's algorithm": LLOYD_ITERATIONS,
    "the stride of sampling": SAMPLING_STRIDE,
    "the counters of a histogram": HISTOGRAM_COUNTERS,
}

_P, _K = ArrayPointer, ctypes.c_void_p  # arrays and structures; the kernel
_U32, _U64, _I32, _I64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64
_DOUBLE, _FLOAT = ctypes.c_double, ctypes.c_float
# Result and arguments of every function, as src/exports.h declares them.
SIGNATURES: Final = {
    "uw_abi": (_U32, [_P, _U32]),
    "uw_find_kernel": (ctypes.c_void_p, [ctypes.c_char_p]),
    "uw_histogram": (_I32, [_P, _U64, _U32, _U32, _U32, _U64, _P, _P]),
    "uw_normalise": (None, [_P, _U32, _P]),
    "uw_lloyd": (_I64, [_P, _U32, _P, _P, _P, _P, _P]),
    "uw_serialise": (_I64, [_P, _U32, _P]),
    "uw_parse": (_I64, [_P, _U64, _U32, _P]),
    "uw_rans_encode": (_I64, [_K, _P, _P, _U32, _P, _U32, _P, _U32, _P, _U64, _P]),
    "uw_rans_decode": (
        _I32,
        [_K, _P, _U64, _P, _U32, _P, _U32, _P, _U64, _U32, _P, _U64, _P, _U64],
    ),
    "uw_decode16": (
        _I32,
        [_K, _P, _U64, _P, _U32, _P, _U32, _P, _U64, _P, _U64, _P, _P, _U64],
    ),
    "uw_decode_levels": (
        _I32,
        [_K, _P, _U64, _P, _U32, _P, _U32, _P, _U64, _P, _P, _P, _U64, _P, _U64],
    ),
    "uw_split": (None, [_K, _P, _U64, _P, _P, _P, _U64, _P]),
    "uw_split16": (_I64, [_K, _P, _U64, _U64, _P, _P, _P, _P, _P, _P]),
    "uw_join": (None, [_K, _P, _P, _P, _U64, _P, _P]),
    "uw_collect_escapes": (_U64, [_P, _P, _U64, _P, _P]),
    "uw_patch": (_I32, [_P, _U64, _P, _P, _U64, _P]),
    "uw_pack_bits": (None, [_K, _P, _U64, _U32, _P]),
    "uw_unpack_bits": (_I32, [_K, _P, _U64, _U64, _U32, _P]),
    "uw_take_field": (None, [_K, _P, _U64, _U64, _U32, _U32, _U32, _P]),
    "uw_put_field": (None, [_K, _P, _U64, _U64, _U32, _U32, _U32, _P]),
    "uw_zero_points": (None, [_P, _U64, _DOUBLE, _DOUBLE, _U32, _P]),
    "uw_quantise": (None, [_K, _P, _U64, _P, _P, _FLOAT, _P, _P, _P]),
    "uw_find_nearest": (None, [_K, _P, _U64, _P, _P, _FLOAT, _P, _P, _P]),
    "uw_dequantise": (_I32, [_K, _P, _P, _U64, _P, _FLOAT, _P, _P, _U64, _P]),
    "uw_predict": (None, [_K, _P, _U64, _U64, _P]),
    "uw_squared_error": (_I32, [_K, _P, _P, _U64, _U32, _P]),
}


class StaleLibraryError(Exception):
    """The library was built from other sources than this binding; the message says how it shows."""


def find_library() -> Path | None:
    """Return the compiled library beside the kernels; None when it was not built."""
    for suffix in LIBRARY_SUFFIXES:
        path = Path(__file__).parents[1] / (LIBRARY_STEM + suffix)
        if path.exists():
            return path
    return None


def load_library(path: Path) -> ctypes.CDLL:
    """Load the compiled library.

    Raises OSError when the system cannot load it, and StaleLibraryError when it is one of other
    sources: its functions may have the names of today's and take other arguments.
    """
    library = ctypes.CDLL(str(path))
    try:
        functions = {name: getattr(library, name) for name in SIGNATURES}
    except AttributeError as error:
        raise StaleLibraryError(f"a function is missing ({error})") from None
    for name, (result, arguments) in SIGNATURES.items():
        functions[name].restype, functions[name].argtypes = result, arguments
    _check_facts(library)
    return library


def _check_facts(library: ctypes.CDLL) -> None:
    found = np.zeros(len(FACTS), np.uint32)
    number = library.uw_abi(found, found.size)
    for (what, expected), value in zip(FACTS.items(), found.tolist(), strict=True):
        if value != expected:
            raise StaleLibraryError(f"{what} is {value}, not {expected}")
    if number != len(FACTS):
        raise StaleLibraryError(f"it states {number} facts, not {len(FACTS)}")


def supported(library: ctypes.CDLL, name: str) -> bool:
    """Whether this processor runs the kernels called ``name``."""
    return bool(library.uw_find_kernel(name.encode()))
