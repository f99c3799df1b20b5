"""The safetensors reader: one test per malformation."""

import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.safetensors_files import (
    file_of,
    framed,
    refused_by_reference,
    tensor,
    write_and_read,
)
from unweight.containers.base import ContainerIndex
from unweight.containers.safetensors import MAX_HEADER_BYTES
from unweight_codecs.errors import FormatError

Read = Callable[[bytes], ContainerIndex]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the index of a file with the given content."""
    return partial(write_and_read, tmp_path / "model.safetensors")


# --- damaged files --------------------------------------------------------------------------


def test_header_length_zero(read: Read) -> None:
    with pytest.raises(FormatError, match="header is empty"):
        read(bytes(64))


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1])
def test_header_length_above_the_limit(read: Read, length: int) -> None:
    with pytest.raises(FormatError, match="neither"):
        read(struct.pack("<Q", length) + b"{}")


def test_header_longer_than_the_file(read: Read) -> None:
    with pytest.raises(FormatError, match=r"98 bytes missing: .*ends inside its header"):
        read(struct.pack("<Q", 100) + b"{}")


def test_every_truncation_is_noticed(read: Read) -> None:
    content = file_of({"t": tensor()}, bytes(4))
    for size in range(len(content)):
        with pytest.raises(FormatError):
            read(content[:size])


def test_missing_data_is_counted(read: Read) -> None:
    with pytest.raises(FormatError, match=r"3 bytes missing at the end .*download"):
        read(file_of({"t": tensor()}, bytes(1)))


def test_huge_tensor_in_a_small_file(read: Read) -> None:
    size = 5 << 30
    with pytest.raises(FormatError, match=f"{size - 8} bytes missing"):
        read(file_of({"t": tensor(shape=[size], data_offsets=[0, size])}, bytes(8)))


def test_bytes_after_the_last_tensor(read: Read) -> None:
    with pytest.raises(FormatError, match="2 bytes after the last tensor"):
        read(file_of({"t": tensor()}, bytes(6)))


# --- malformed headers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "message"),
    [
        pytest.param(b" {}", "does not begin with '{'", id="leading space"),
        pytest.param(b"[]", "does not begin with '{'", id="array"),
        pytest.param(b"{}\0\0", "padded with NUL", id="NUL padding"),
        pytest.param(b"{} x", "not valid JSON", id="trailing text"),
        pytest.param(b'{"a":', "not valid JSON", id="incomplete JSON"),
        pytest.param(b'{"\xff":{}}', "not UTF-8", id="invalid UTF-8"),
        pytest.param(b'{"\\ud800":{}}', "lone surrogate", id="lone surrogate"),
        pytest.param(b'{"a":' + b"[" * 20_000, "nested deeper", id="deep nesting"),
        pytest.param(b'{"a":NaN}', "NaN is not", id="NaN"),
        pytest.param(b'{"__metadata__":{},"__metadata__":{}}', "duplicate", id="two metadata"),
    ],
)
def test_header_that_is_no_strict_json_object(read: Read, header: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(framed(header))


@pytest.mark.parametrize("metadata", [1, "x", [], {"a": 1}, {"a": None}, {"a": {}}])
def test_metadata_that_is_not_string_to_string(read: Read, metadata: object) -> None:
    with pytest.raises(FormatError, match="__metadata__"):
        read(file_of({"__metadata__": metadata}))


def test_duplicate_tensor_name(read: Read) -> None:
    entry = json.dumps(tensor())
    with pytest.raises(FormatError, match="duplicate key 't'"):
        read(framed(f'{{"t":{entry},"t":{entry}}}'.encode(), bytes(4)))


def test_duplicate_field(read: Read) -> None:
    with pytest.raises(FormatError, match="duplicate key 'dtype'"):
        read(framed(b'{"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"))


@pytest.mark.parametrize("entry", [None, 1, "U8", ["U8", [4], [0, 4]]])
def test_tensor_that_is_no_object(read: Read, entry: object) -> None:
    with pytest.raises(FormatError, match="tensor 't': not an object"):
        read(file_of({"t": entry}, bytes(4)))


@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets"])
def test_missing_field(read: Read, field: str) -> None:
    entry = tensor()
    del entry[field]
    with pytest.raises(FormatError, match=f"tensor 't': no {field}"):
        read(file_of({"t": entry}, bytes(4)))


@pytest.mark.parametrize("dtype", ["", "u8", "F8_E8M0FNU", "C128", 8, None, ["U8"], {}])
def test_unknown_dtype(read: Read, dtype: object) -> None:
    with pytest.raises(FormatError, match=r"tensor 't': unknown dtype .*known dtypes: F64"):
        read(file_of({"t": tensor(dtype)}, bytes(4)))


NOT_SIZES: list[object] = [
    None,
    4,
    "4",
    {},
    [4.0],
    [True],
    [None],
    ["4"],
    [[4]],
    [-4],
    [2**63],
    [10**30],
]


@pytest.mark.parametrize("shape", NOT_SIZES)
def test_shape_that_is_no_list_of_sizes(read: Read, shape: object) -> None:
    with pytest.raises(FormatError, match="tensor 't': shape"):
        read(file_of({"t": tensor(shape=shape)}, bytes(4)))


@pytest.mark.parametrize(
    "offsets",
    [*NOT_SIZES, [], [0], [0, 4, 4], [0, 4.0], [False, 4], [-4, 0], [0, 2**63], [4, 0]],
)
def test_data_offsets_that_are_no_range(read: Read, offsets: object) -> None:
    with pytest.raises(FormatError, match="tensor 't': data_offsets"):
        read(file_of({"t": tensor(data_offsets=offsets)}, bytes(4)))


def test_negative_zero_is_no_size(read: Read) -> None:
    content = framed(b'{"t":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}')
    assert refused_by_reference(content)
    with pytest.raises(FormatError, match="shape"):
        read(content)


def test_size_that_differs_from_dtype_and_shape(read: Read) -> None:
    with pytest.raises(FormatError, match=r"F32 of shape .2. takes 8 bytes, .* give 4"):
        read(file_of({"t": tensor("F32", [2])}, bytes(4)))


@pytest.mark.parametrize("shape", [[2**62, 4], [2**32, 2**32], [2**62, 2**62, 0], [2**62] * 99_999])
def test_shape_whose_product_overflows(read: Read, shape: list[int]) -> None:
    with pytest.raises(FormatError, match="overflows") as caught:
        read(file_of({"t": tensor(shape=shape, data_offsets=[0, 0])}))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("dtype", "elements"), [("F4", 3), ("F6_E2M3", 2), ("F6_E3M2", 5)])
def test_elements_that_end_inside_a_byte(read: Read, dtype: str, elements: int) -> None:
    with pytest.raises(FormatError, match="whole number of bytes"):
        read(file_of({"t": tensor(dtype, [elements])}, bytes(4)))


def test_hole_between_tensors(read: Read) -> None:
    header = {"a": tensor(), "b": tensor(data_offsets=[8, 12])}
    with pytest.raises(FormatError, match=r"tensor 'b': begins at data byte 8 .* of 4 .*hole"):
        read(file_of(header, bytes(12)))


def test_hole_before_the_first_tensor(read: Read) -> None:
    with pytest.raises(FormatError, match="hole"):
        read(file_of({"a": tensor(data_offsets=[8, 12])}, bytes(12)))


def test_overlapping_tensors(read: Read) -> None:
    header = {"a": tensor(), "b": tensor(data_offsets=[2, 6])}
    with pytest.raises(FormatError, match=r"tensor 'b': .*overlaps"):
        read(file_of(header, bytes(6)))


def test_two_tensors_over_the_same_bytes(read: Read) -> None:
    with pytest.raises(FormatError, match="overlaps"):
        read(file_of({"a": tensor(), "b": tensor()}, bytes(4)))


def test_empty_tensor_inside_another(read: Read) -> None:
    header = {"a": tensor(), "e": tensor(shape=[0], data_offsets=[2, 2])}
    content = file_of(header, bytes(4))
    assert refused_by_reference(content)
    with pytest.raises(FormatError, match="tensor 'e'"):
        read(content)


def test_message_is_one_line_whatever_the_name(read: Read) -> None:
    with pytest.raises(FormatError) as caught:
        read(file_of({"a\n\x1b[31m" + "x" * 100_000: 1}))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
