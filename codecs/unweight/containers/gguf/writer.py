"""Writes GGUF headers of version 3: keys and tensors in the order given, of any length wanted."""

import struct
from collections.abc import Sequence
from typing import Final

from unweight.containers.gguf.cursor import MAX_HEADER_BYTES
from unweight.containers.gguf.ggml_types import ggml_type
from unweight.containers.gguf.header import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_DIMENSIONS,
    GgufHeader,
    align,
    text_of,
)
from unweight.containers.gguf.values import KeyValue, ValueType
from unweight_codecs.errors import FormatError, UnweightError, quoted

RESERVED_PREFIX: Final = b"unweight."  # of the keys that only Unweight files have
PADDING_KEY: Final = "unweight.padding"
ARCHITECTURE_KEY: Final = "general.architecture"
ORIGINAL_ARCHITECTURE_KEY: Final = "unweight.architecture"
MAX_VISIBLE_ELEMENTS: Final = 64  # of an array

_VERSION: Final = 3

NewTensor = tuple[bytes, int, tuple[int, ...]]  # name, type id, extents with the row first


def encode_string_key(name: str, value: str) -> bytes:
    """Return a key-value whose value is a string."""
    return (
        _string(name.encode("utf-8"))
        + struct.pack("<I", ValueType.STRING)
        + _string(value.encode("utf-8"))
    )


def header_bytes(
    keys: Sequence[bytes],
    tensors: Sequence[NewTensor],
    alignment: int = DEFAULT_ALIGNMENT,
    *,
    length: int | None = None,
) -> bytes:
    """Return everything that precedes the tensor data of a file.

    The format has no length field, and readers expect data at the first aligned byte after the
    tensor table. A last key ``unweight.padding`` therefore takes up what is left.

    Args:
        keys: Encoded key-values.
        tensors: The tensors in the order of their data.
        alignment: Where tensors begin; ``keys`` must say so too when it is not the default.
        length: Total bytes to return, a multiple of the alignment; by default the least possible.

    Raises:
        UnweightError: The header does not fit ``length`` or the format, or a name is used twice.
    """
    table = _tensor_table(tensors, alignment)
    padding = encode_string_key(PADDING_KEY, "")
    _check_unique("key", [_key_name(key) for key in (*keys, padding)])
    start = struct.pack("<4sIQQ", MAGIC, _VERSION, len(tensors), len(keys) + 1) + b"".join(keys)
    least = len(start) + len(padding) + len(table)
    total = align(least, alignment) if length is None else length
    if total < least:
        raise UnweightError(f"header needs {least} bytes, {total} are reserved")
    if total % alignment:
        raise UnweightError(f"header of {total} bytes does not end at the alignment {alignment}")
    if total > MAX_HEADER_BYTES:
        raise UnweightError(f"header of {total} bytes exceeds the limit of {MAX_HEADER_BYTES}")
    return start + encode_string_key(PADDING_KEY, " " * (total - least)) + table


def visible_keys(header: bytes, parsed: GgufHeader, architecture: str = "unweight") -> list[bytes]:
    """Return the encoded key-values that an Unweight file shows of its source.

    All keys stay, in order. ``general.architecture`` becomes ``architecture``, which makes loaders
    refuse the file by name; the original value follows as ``unweight.architecture``. Long arrays,
    the vocabularies, become empty ones of the same type: the source header is kept elsewhere.

    Raises FormatError for a source with keys of Unweight's own.
    """
    visible = []
    replaced = False
    for key in parsed.keys:
        if key.name.startswith(RESERVED_PREFIX):
            raise FormatError(
                f"key {quoted(text_of(key.name))} is one that only Unweight writes",
                hint="the file was compressed by Unweight before",
            )
        value = _visible_value(header, key)
        if key.name == ARCHITECTURE_KEY.encode():
            visible.append(encode_string_key(ARCHITECTURE_KEY, architecture))
            visible.append(_string(ORIGINAL_ARCHITECTURE_KEY.encode()) + value)
            replaced = True
        else:
            visible.append(_string(key.name) + value)
    if not replaced:
        visible.insert(0, encode_string_key(ARCHITECTURE_KEY, architecture))
    return visible


def _visible_value(header: bytes, key: KeyValue) -> bytes:
    """Return the type and the value of a key, the elements of a long array left out."""
    if key.array_type is not None and key.array_count > MAX_VISIBLE_ELEMENTS:
        return struct.pack("<IIQ", ValueType.ARRAY, key.array_type, 0)
    return header[key.type_start : key.end]


def _tensor_table(tensors: Sequence[NewTensor], alignment: int) -> bytes:
    _check_unique("tensor", [name for name, _, _ in tensors])
    table = bytearray()
    offset = 0
    for name, type_id, ne in tensors:
        if len(ne) > MAX_DIMENSIONS:
            raise UnweightError(f"tensor {quoted(text_of(name))} has {len(ne)} dimensions")
        extents = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
        table += _string(name) + extents + struct.pack("<IQ", type_id, offset)
        offset = align(offset + ggml_type(type_id).nbytes(ne[::-1]), alignment)
    return bytes(table)


def _check_unique(what: str, names: list[bytes]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise UnweightError(f"{what} {quoted(text_of(name))} cannot be written: already taken")
        seen.add(name)


def _key_name(key: bytes) -> bytes:
    return key[8 : 8 + int.from_bytes(key[:8], "little")]


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text
