"""The structure of a GGUF header: magic, version, counts, key-values, tensor table.

Layout: ``GGUF``, u32 version, u64 number of tensors, u64 number of key-values, the key-values, one
entry per tensor (name, extents, type, offset), then padding up to the alignment, then tensor data.
"""

import functools
from dataclasses import dataclass
from typing import Final

from unweight.containers.foreign import foreign_file
from unweight.containers.gguf.cursor import Cursor
from unweight.containers.gguf.values import (
    LEAST_KEY_VALUE_BYTES,
    KeyValue,
    ValueType,
    integer_value,
    read_key_value,
)
from unweight_codecs.errors import FormatError, quoted

MAGIC: Final = b"GGUF"
TITLE: Final = "GGUF"
VERSIONS: Final = (2, 3)  # the same layout; 3 came with the big-endian variant
MAX_DIMENSIONS: Final = 4
ALIGNMENT_KEY: Final = b"general.alignment"
DEFAULT_ALIGNMENT: Final = 32
MAX_ALIGNMENT: Final = 1 << 20
# Far above what models have; the objects of a key or a tensor take much more memory than its bytes.
MAX_KEYS: Final = 1 << 16
MAX_TENSORS: Final = 1 << 18

_LEAST_TENSOR_BYTES: Final = 8 + 4 + 4 + 8
_MAX_EXTENT: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An entry of the tensor table.

    Attributes:
        name: The name, as stored.
        type_id: Number of the GGML type.
        ne: Extents as stored, the row first: the reverse of NumPy's order.
        offset: Where its bytes begin, counted from the start of the tensor data.
    """

    name: bytes
    type_id: int
    ne: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A parsed header.

    Attributes:
        version: Version of the format.
        alignment: Tensors begin at multiples of this many bytes.
        keys: Key-values in file order.
        tensors: The tensor table in file order, which need not be the order of the data.
        data_start: Offset of the tensor data in the file, padding included. A file without tensor
            bytes may end before.
    """

    version: int
    alignment: int
    keys: tuple[KeyValue, ...]
    tensors: tuple[TensorInfo, ...]
    data_start: int


def text_of(string: bytes) -> str:
    r"""Return a stored string as text; bytes that are not UTF-8 become ``\xNN``."""
    return string.decode("utf-8", "backslashreplace")


def align(position: int, alignment: int) -> int:
    """Return the next multiple of ``alignment`` from ``position`` on."""
    return -(-position // alignment) * alignment


@functools.lru_cache(maxsize=2)  # several parts ask for it, and a vocabulary takes a while
def parse_header(header: bytes) -> GgufHeader:
    """Parse a complete header; bytes after the tensor table are not looked at.

    Raises FormatError for every deviation from the format.
    """
    return walk_header(Cursor(lambda at, length: header[at : at + length], len(header)))


def walk_header(cursor: Cursor) -> GgufHeader:
    """Parse a header from the file behind ``cursor``; raises FormatError as ``parse_header``."""
    version = _read_version(cursor)
    tensor_count = cursor.count("tensors", _LEAST_TENSOR_BYTES)
    key_count = cursor.count("key-values", LEAST_KEY_VALUE_BYTES)
    if key_count > MAX_KEYS or tensor_count > MAX_TENSORS:
        raise FormatError(
            f"{key_count} key-values and {tensor_count} tensors are too many",
            hint=f"at most {MAX_KEYS} and {MAX_TENSORS} are read",
        )
    keys = _read_keys(cursor, key_count)
    tensors = _read_tensors(cursor, tensor_count)
    alignment = _alignment(cursor, keys)
    return GgufHeader(version, alignment, keys, tensors, align(cursor.at, alignment))


def _read_version(cursor: Cursor) -> int:
    start = cursor.skip(len(MAGIC))
    if cursor.data[start : start + len(MAGIC)] != MAGIC:
        raise foreign_file(bytes(cursor.data[:64]), [TITLE])
    version = cursor.u32()
    if version in VERSIONS:
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        raise FormatError(
            "this is a big-endian GGUF file, only little-endian ones are supported",
            hint="gguf-convert-endian of the gguf package converts it",
        )
    raise FormatError(
        f"GGUF version {version} is not supported, versions 2 and 3 are",
        hint="convert the model again with a current llama.cpp" if version < min(VERSIONS) else "",
    )


def _read_keys(cursor: Cursor, count: int) -> tuple[KeyValue, ...]:
    keys: dict[str, KeyValue] = {}
    for number in range(count):
        where = f"key-value {number} of {count}"
        try:
            start = cursor.at
            name = cursor.string()
            where = f"key {quoted(text_of(name))}"
            key = read_key_value(cursor, name, start)
        except FormatError as error:
            raise FormatError(f"{where}: {error.message}", hint=error.hint) from None
        if not name:
            raise FormatError(f"key-value {number} of {count}: the key is empty")
        if keys.setdefault(text_of(name), key) is not key:
            raise FormatError(f"{where} is there twice")
    return tuple(keys.values())


def _read_tensors(cursor: Cursor, count: int) -> tuple[TensorInfo, ...]:
    tensors: dict[str, TensorInfo] = {}
    for number in range(count):
        where = f"tensor {number} of {count}"
        try:
            name = cursor.string()
            where = f"tensor {quoted(text_of(name))}"
            tensor = _read_tensor(cursor, name)
        except FormatError as error:
            raise FormatError(f"{where}: {error.message}", hint=error.hint) from None
        if tensors.setdefault(text_of(name), tensor) is not tensor:
            raise FormatError(f"{where} is there twice")
    return tuple(tensors.values())


def _read_tensor(cursor: Cursor, name: bytes) -> TensorInfo:
    dimensions = cursor.u32()
    if dimensions > MAX_DIMENSIONS:
        raise FormatError(f"{dimensions} dimensions, the format allows {MAX_DIMENSIONS}")
    ne = tuple(cursor.u64() for _ in range(dimensions))
    if max(ne, default=0) > _MAX_EXTENT:
        raise FormatError(f"extents {list(ne)} overflow 64-bit sizes")
    return TensorInfo(name, cursor.u32(), ne, cursor.u64())


def _alignment(cursor: Cursor, keys: tuple[KeyValue, ...]) -> int:
    for key in keys:
        if key.name == ALIGNMENT_KEY:
            value = integer_value(cursor.data, key)
            if key.value_type is not ValueType.UINT32 or value is None:
                raise FormatError(f"general.alignment has type {key.value_type.name}, not UINT32")
            if not 0 < value <= MAX_ALIGNMENT or value & (value - 1):
                raise FormatError(
                    f"general.alignment is {value}, not a power of two up to {MAX_ALIGNMENT}"
                )
            return value
    return DEFAULT_ALIGNMENT
