"""The key-values of a GGUF header: which bytes each takes, without building its value."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from unweight.containers.gguf.cursor import Cursor
from unweight_codecs.errors import FormatError

MAX_ARRAY_DEPTH: Final = 8  # arrays inside arrays; files have one level, rarely two


class ValueType(IntEnum):
    """Type of a value or of the elements of an array, by its number in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_SCALAR_BYTES: Final = {
    ValueType.UINT8: 1,
    ValueType.INT8: 1,
    ValueType.UINT16: 2,
    ValueType.INT16: 2,
    ValueType.UINT32: 4,
    ValueType.INT32: 4,
    ValueType.FLOAT32: 4,
    ValueType.BOOL: 1,
    ValueType.UINT64: 8,
    ValueType.INT64: 8,
    ValueType.FLOAT64: 8,
}
# An empty string is its length; an empty array is its element type and its length.
_MIN_BYTES: Final = {**_SCALAR_BYTES, ValueType.STRING: 8, ValueType.ARRAY: 12}

_SIGNED: Final = {
    ValueType.UINT8: False,
    ValueType.INT8: True,
    ValueType.UINT16: False,
    ValueType.INT16: True,
    ValueType.UINT32: False,
    ValueType.INT32: True,
    ValueType.UINT64: False,
    ValueType.INT64: True,
}

MIN_KEY_VALUE_BYTES: Final = 8 + 4 + min(_MIN_BYTES.values())


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key-value and where in the header it lies.

    Attributes:
        name: The key, as stored.
        value_type: Type of the value.
        start: Offset of the first byte of the key-value, the key's length.
        end: Offset of the byte after its last.
        array_type: Type of the elements of an array, otherwise None.
        array_count: Number of elements of an array, otherwise 0.
    """

    name: bytes
    value_type: ValueType
    start: int
    end: int
    array_type: ValueType | None = None
    array_count: int = 0

    @property
    def type_start(self) -> int:
        """Offset of the value's type, which follows the key."""
        return self.start + 8 + len(self.name)

    @property
    def string_start(self) -> int:
        """Offset of the first character of a string value, which ends at ``end``."""
        return self.type_start + 4 + 8


def read_key_value(cursor: Cursor, name: bytes, start: int) -> KeyValue:
    """Read what follows the key ``name`` that began at ``start``; raises FormatError."""
    value_type = _value_type(cursor.u32())
    if value_type is ValueType.ARRAY:
        array_type, array_count = _skip_array(cursor, 1)
        return KeyValue(name, value_type, start, cursor.at, array_type, array_count)
    if value_type is ValueType.STRING:
        cursor.skip(cursor.u64())
    else:
        cursor.skip(_SCALAR_BYTES[value_type])
    return KeyValue(name, value_type, start, cursor.at)


def integer_value(header: bytes | bytearray, key: KeyValue) -> int | None:
    """Return the value of a key of any integer type, None for other types."""
    if key.value_type not in _SIGNED:
        return None
    value = header[key.type_start + 4 : key.end]
    return int.from_bytes(value, "little", signed=_SIGNED[key.value_type])


def _skip_array(cursor: Cursor, depth: int) -> tuple[ValueType, int]:
    """Step over an array; returns the type and the number of its elements."""
    if depth > MAX_ARRAY_DEPTH:
        raise FormatError(f"arrays are nested deeper than {MAX_ARRAY_DEPTH} levels")
    element_type = _value_type(cursor.u32())
    count = cursor.count("array elements", _MIN_BYTES[element_type])
    if element_type is ValueType.STRING:
        cursor.skip_strings(count)
    elif element_type is ValueType.ARRAY:
        for _ in range(count):
            _skip_array(cursor, depth + 1)
    else:
        cursor.skip(count * _SCALAR_BYTES[element_type])
    return element_type, count


def _value_type(number: int) -> ValueType:
    try:
        return ValueType(number)
    except ValueError:
        raise FormatError(
            f"unknown value type {number}", hint=f"known are 0 to {max(ValueType)}"
        ) from None
