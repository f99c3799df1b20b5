"""The GGUF reader: one test per malformation."""

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.gguf_files import (
    I8,
    Q4_0,
    aligned,
    array,
    file_of,
    key,
    sparse,
    start,
    string,
    tensor,
    text,
    write_and_read,
)
from unweight.containers.base import ContainerIndex
from unweight.containers.gguf import cursor as gguf_cursor
from unweight.containers.gguf.header import MAX_ALIGNMENT, MAX_KEYS, MAX_TENSORS
from unweight.containers.gguf.reader import parse_index, read_index
from unweight.containers.gguf.values import MAX_ARRAY_DEPTH, ValueType
from unweight_codecs.errors import FormatError

Read = Callable[[bytes], ContainerIndex]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the index of a file with the given content."""
    return partial(write_and_read, tmp_path / "model.gguf")


# --- files that are something else ----------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"GGU", "has only 3 bytes", id="three bytes"),
        pytest.param(b"FUGG" + bytes(28), "not a GGUF file", id="reversed"),
        pytest.param(b"PK\x03\x04" + bytes(28), "zip archive", id="zip"),
        pytest.param(start(version=0), "version 0 is not supported", id="version 0"),
        pytest.param(
            start(version=1), "version 1 is not .*versions 2 and 3 are .convert", id="version 1"
        ),
        pytest.param(start(version=4), "version 4 is not .*versions 2 and 3 are$", id="version 4"),
        pytest.param(start(version=3 << 24), "big-endian .*gguf-convert-endian", id="big-endian"),
    ],
)
def test_other_file_is_named_as_what_it_is(read: Read, content: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=rf"model\.gguf: .*{message}"):
        read(content)


def test_header_of_another_container_is_not_parsed() -> None:
    with pytest.raises(FormatError, match="not a GGUF file"):
        parse_index(b"\x02" + bytes(7) + b"{}", 10)


def test_header_of_another_length_is_not_parsed() -> None:
    content = file_of(tensors=[tensor()], data=bytes(32))
    for length in (len(content) - 31, len(content) - 33):
        with pytest.raises(FormatError, match="another length"):
            parse_index(content[:length], len(content))


# --- damaged files --------------------------------------------------------------------------


def test_every_truncation_is_noticed(read: Read) -> None:
    nested = array(ValueType.ARRAY, 1, array(ValueType.STRING, 1, string(b"abc")))
    keys = [text(b"k", b"v"), key(b"n", ValueType.ARRAY, nested)]
    content = file_of(keys, [tensor(ne=(4, 2)), tensor(b"u", (1,), 32)], bytes(36))
    read(content)
    for size in range(len(content)):
        with pytest.raises(FormatError, match=r"model\.gguf: "):
            read(content[:size])


def test_missing_data_is_counted(read: Read) -> None:
    with pytest.raises(FormatError, match=r"tensor 't': 3 bytes missing at the end .*download"):
        read(file_of(tensors=[tensor()], data=bytes(29)))


@pytest.mark.parametrize("element_type", ValueType)
@pytest.mark.parametrize("count", [2**20, 2**32, 2**61, 2**64 - 1])
def test_huge_array_count_is_refused_at_once(
    tmp_path: Path, element_type: ValueType, count: int
) -> None:
    content = file_of([key(b"k", ValueType.ARRAY, array(element_type, count, bytes(4096)))])
    # Even where the file is long enough for that many elements, a header is not.
    size = 1 << 36 if count > 2**30 else len(content)
    with sparse(tmp_path / "model.gguf", content, size) as source:
        with pytest.raises(FormatError, match=f"key 'k': {count} array elements cannot fit"):
            read_index(source)
        assert source.asked < 2 << 20


@pytest.mark.parametrize(
    ("element_type", "least"), [(ValueType.UINT16, 2), (ValueType.STRING, 8), (ValueType.ARRAY, 12)]
)
def test_array_may_fill_the_file_but_not_exceed_it(
    read: Read, element_type: ValueType, least: int
) -> None:
    for count in (3, 4):
        value = array(element_type, count, bytes(3 * least))  # zeros are empty elements
        content = start(0, 1) + key(b"k", ValueType.ARRAY, value)
        if count == 3:
            assert read(content).header == content
        else:
            with pytest.raises(FormatError, match=f"4 array elements cannot fit {3 * least} bytes"):
                read(content)


@pytest.mark.parametrize("count", [2, 2**32, 2**61, 2**64 - 1])
def test_huge_counts_of_tensors_and_keys(read: Read, count: int) -> None:
    with pytest.raises(FormatError, match=f"{count} tensors cannot fit 40 bytes"):
        read(start(count) + bytes(32))
    with pytest.raises(FormatError, match=f"{count} key-values cannot fit 0 bytes"):
        read(start(0, count))


@pytest.mark.parametrize(("tensors", "keys"), [(MAX_TENSORS + 1, 0), (0, MAX_KEYS + 1)])
def test_more_tensors_or_keys_than_are_read(read: Read, tensors: int, keys: int) -> None:
    with pytest.raises(FormatError, match=r"too many .at most"):
        read(start(tensors, keys) + bytes(24 * tensors + 13 * keys))


@pytest.mark.parametrize("length", [2**40, 2**63, 2**64 - 1])
def test_huge_strings(read: Read, length: int) -> None:
    long = struct.pack("<Q", length)
    for value in (
        key(b"k", ValueType.STRING, long),
        key(b"k", ValueType.ARRAY, array(ValueType.STRING, 1, long)),
        key(b"k", ValueType.ARRAY, array(ValueType.STRING, 2, long)),
    ):
        with pytest.raises(FormatError, match="key 'k': the header goes on to byte"):
            read(file_of([value + bytes(64)]))
    with pytest.raises(FormatError, match="key-value 0 of 1: the header goes on to byte"):
        read(file_of([long + bytes(64)]))
    with pytest.raises(FormatError, match="tensor 0 of 1: the header goes on"):
        read(file_of(tensors=[long + bytes(64)]))


def test_header_above_the_limit(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    content = file_of([text(b"k", b"x" * 100)])
    monkeypatch.setattr(gguf_cursor, "MAX_HEADER_BYTES", 100)
    with pytest.raises(FormatError, match="key 'k': the header is longer than 100 bytes"):
        read(content)


@pytest.mark.parametrize("levels", [MAX_ARRAY_DEPTH, MAX_ARRAY_DEPTH + 1, 100_000])
def test_depth_of_arrays_is_bounded(read: Read, levels: int) -> None:
    outer = array(ValueType.ARRAY, 1) * (levels - 1)
    content = file_of([key(b"k", ValueType.ARRAY, outer + array(ValueType.UINT8, 1, b"x"))])
    if levels == MAX_ARRAY_DEPTH:
        read(content)
    else:
        with pytest.raises(FormatError, match="key 'k': arrays are nested deeper"):
            read(content)


@pytest.mark.parametrize("number", [13, 77, 2**32 - 1])
def test_unknown_value_type(read: Read, number: int) -> None:
    for value in (key(b"k", number, bytes(64)), key(b"k", ValueType.ARRAY, array(number, 1))):
        with pytest.raises(FormatError, match=f"key 'k': unknown value type {number} "):
            read(file_of([value, bytes(64)]))


# --- malformed headers ----------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [0, 3, 48, 2 * MAX_ALIGNMENT, 1 << 30, 2**32 - 1])
def test_impossible_alignment(read: Read, alignment: int) -> None:
    with pytest.raises(FormatError, match=f"general.alignment is {alignment}, not a power of two"):
        read(file_of([aligned(alignment)]))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param((ValueType.INT32, struct.pack("<i", 32)), id="signed"),
        pytest.param((ValueType.UINT64, struct.pack("<Q", 32)), id="64 bits"),
        pytest.param((ValueType.FLOAT32, struct.pack("<f", 32)), id="float"),
        pytest.param((ValueType.STRING, string(b"32")), id="string"),
        pytest.param((ValueType.ARRAY, array(ValueType.UINT32, 1, bytes(4))), id="array"),
    ],
)
def test_alignment_of_another_type(read: Read, value: tuple[ValueType, bytes]) -> None:
    with pytest.raises(FormatError, match=f"alignment has type {value[0].name}, not UINT32"):
        read(file_of([key(b"general.alignment", *value)]))


@pytest.mark.parametrize("names", [(b"a", b"a"), (b"\xff", b"\\xff"), (b"", b"")])
def test_names_that_are_there_twice(read: Read, names: tuple[bytes, bytes]) -> None:
    tensors = [tensor(names[0]), tensor(names[1], offset=32)]
    with pytest.raises(FormatError, match=r"tensor '.*' is there twice"):
        read(file_of(tensors=tensors, data=bytes(64)))
    keys = [text(b"k" + name, b"") for name in names]
    with pytest.raises(FormatError, match=r"key 'k.*' is there twice"):
        read(file_of(keys))


def test_empty_key(read: Read) -> None:
    with pytest.raises(FormatError, match="key-value 1 of 2: the key is empty"):
        read(file_of([text(b"k", b"v"), text(b"", b"v")]))


@pytest.mark.parametrize("dimensions", [5, 64, 2**32 - 1])
def test_more_dimensions_than_the_format_has(read: Read, dimensions: int) -> None:
    header = string(b"t") + struct.pack("<I", dimensions) + struct.pack("<Q", 1) * 64
    with pytest.raises(FormatError, match=f"tensor 't': {dimensions} dimensions"):
        read(file_of(tensors=[header]))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (tensor(ne=(2**63,)), "extents .* overflow 64-bit"),
        (tensor(ne=(2**62, 2**62)), "overflows 64-bit"),
        (tensor(ne=(2**32, 2**32, 2**32, 2**32)), "overflows 64-bit"),
        (tensor(ne=(48,), type_id=Q4_0), "rows of 48 elements are not whole Q4_0 blocks of 32"),
        (tensor(type_id=200), "unknown GGML type 200"),
        (tensor(offset=4), "begins at data byte 4, .* alignment 32"),
        (tensor(offset=2**40), "bytes missing"),
        (tensor(offset=2**64 - 32), "bytes missing"),
        (tensor(offset=64), "64 bytes before it belong to no tensor"),
    ],
)
def test_impossible_tensor(read: Read, entry: bytes, message: str) -> None:
    content = file_of(tensors=[entry], data=bytes(96))
    with pytest.raises(FormatError, match=rf"{message}") as caught:
        read(content)
    assert len(str(caught.value)) < 500


def test_bytes_after_the_last_tensor(read: Read) -> None:
    with pytest.raises(FormatError, match="33 bytes after the last tensor"):
        read(file_of(tensors=[tensor()], data=bytes(65)))
    with pytest.raises(FormatError, match="33 bytes after the last tensor"):
        read(file_of(data=bytes(33)))


@pytest.mark.parametrize(
    "tensors",
    [
        pytest.param([tensor(b"a"), tensor(b"b")], id="same place"),
        pytest.param([tensor(b"a", (16,)), tensor(b"b", offset=32)], id="half"),
        pytest.param([tensor(b"a", (33,), 0, I8), tensor(b"b", offset=32)], id="one byte"),
        pytest.param([tensor(b"a", (24,)), tensor(b"b", (0,), 32)], id="empty one inside"),
    ],
)
def test_overlapping_tensors(read: Read, tensors: list[bytes]) -> None:
    with pytest.raises(FormatError, match="overlaps another tensor"):
        read(file_of(tensors=tensors, data=bytes(96)))


def test_message_is_one_line_whatever_the_name(read: Read) -> None:
    name = b"a\n\x1b[31m" + b"x" * 100_000
    for content in (
        file_of([key(name, 77, b"")]),
        file_of(tensors=[tensor(name, type_id=200)]),
    ):
        with pytest.raises(FormatError) as caught:
            read(content)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500
