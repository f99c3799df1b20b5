"""The safetensors reader and header writer: one test per malformation."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors

from unweight_codecs.containers import safetensors as container
from unweight_codecs.containers import sniff
from unweight_codecs.containers.base import ContainerIndex, FileSource
from unweight_codecs.containers.safetensors import MAX_HEADER_BYTES, header_bytes
from unweight_codecs.containers.snapshot import open_snapshot
from unweight_codecs.errors import FormatError, UnweightError
from unweight_codecs.tensor_spec import DTYPES

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"

Read = Callable[[bytes], ContainerIndex]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the index of a file with the given content."""

    def read_content(content: bytes) -> ContainerIndex:
        path = tmp_path / "model.safetensors"
        path.write_bytes(content)
        with FileSource(path) as source:
            return sniff.read_index(source)

    return read_content


def framed(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def file_of(header: dict[str, Any], data: bytes = b"") -> bytes:
    return framed(json.dumps(header).encode(), data)


def tensor(
    dtype: object = "U8", shape: object = (4,), data_offsets: object = (0, 4)
) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


def read_by_reference(content: bytes) -> list[tuple[str, dict[str, Any]]]:
    return safetensors.deserialize(content)  # type: ignore[no-untyped-call,no-any-return]


def refused_by_reference(content: bytes) -> bool:
    try:
        read_by_reference(content)
    except safetensors.SafetensorError:
        return True
    return False


# --- what is accepted -----------------------------------------------------------------------


def test_index_lists_tensors_with_offsets_from_the_start_of_the_file(read: Read) -> None:
    content = file_of(
        {"__metadata__": {"format": "pt"}, "w": tensor("BF16", [2, 3], [0, 12])}, bytes(12)
    )
    index = read(content)
    (entry,) = index.tensors
    assert index.container == "safetensors"
    assert index.metadata == {"format": "pt"}
    assert index.size == len(content)
    assert index.header == content[:-12]
    assert (entry.spec.name, entry.spec.dtype, entry.spec.shape) == ("w", "BF16", (2, 3))
    assert (entry.offset, entry.nbytes) == (len(content) - 12, 12)


def test_tensors_come_in_file_order_whatever_the_header_order(read: Read) -> None:
    header = {"b": tensor(data_offsets=[4, 8]), "a": tensor(data_offsets=[0, 4])}
    assert [entry.spec.name for entry in read(file_of(header, bytes(8))).tensors] == ["a", "b"]


def test_empty_tensors_come_before_their_neighbour_and_in_header_order(read: Read) -> None:
    header = {
        "b": tensor(data_offsets=[4, 8]),
        "z": tensor(shape=[0], data_offsets=[4, 4]),
        "a": tensor(data_offsets=[0, 4]),
        "e": tensor(shape=[0, 7], data_offsets=[4, 4]),
        "y": tensor(shape=[0], data_offsets=[8, 8]),
    }
    names = [entry.spec.name for entry in read(file_of(header, bytes(8))).tensors]
    assert names == ["a", "z", "e", "b", "y"]


def test_scalar_is_one_element(read: Read) -> None:
    (entry,) = read(file_of({"s": tensor("F32", [], [0, 4])}, bytes(4))).tensors
    assert (entry.spec.shape, entry.spec.elements, entry.nbytes) == ((), 1, 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_the_size_the_reference_gives_it(read: Read, dtype: str) -> None:
    nbytes = DTYPES[dtype].bits  # 8 elements
    content = file_of({"t": tensor(dtype, [8], [0, nbytes])}, bytes(nbytes))
    assert read(content).tensors[0].nbytes == nbytes
    assert not refused_by_reference(content)


def test_every_dtype_of_the_reference_is_known() -> None:
    with pytest.raises(safetensors.SafetensorError, match="expected one of") as caught:
        read_by_reference(file_of({"t": tensor("NONE")}, bytes(4)))
    listed = str(caught.value).split("expected one of")[1].split(" at line")[0]
    assert {name.strip(" `") for name in listed.split(",")} == set(DTYPES)


@pytest.mark.parametrize("space", [b" ", b"\n", b"\t", b"\r"])
def test_trailing_json_whitespace_is_kept(read: Read, space: bytes) -> None:
    content = framed(b"{}" + space)
    assert read(content).header == content


@pytest.mark.parametrize(
    ("header", "metadata"),
    [({}, None), ({"__metadata__": {}}, {}), ({"__metadata__": None}, None)],
)
def test_absent_and_empty_metadata_differ(
    read: Read, header: dict[str, Any], metadata: dict[str, str] | None
) -> None:
    assert read(file_of(header)).metadata == metadata


def test_unknown_field_is_ignored_as_the_reference_does(read: Read) -> None:
    content = file_of({"t": {**tensor(), "extra": {"x": [1.5]}}}, bytes(4))
    assert len(read(content).tensors) == 1
    assert not refused_by_reference(content)


def test_data_may_begin_at_any_offset(read: Read) -> None:
    content = framed(b'{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]} }', bytes(4))
    assert read(content).tensors[0].offset % 4 == 3


# --- files that are something else ----------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"\x10\0\0", "the file has only 3 bytes", id="three bytes"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
            "Git LFS pointer, not the model itself .run git lfs pull",
            id="git lfs pointer",
        ),
        pytest.param(b"PK\x03\x04\x14\0\0\0\x08\x08" + bytes(90), "zip archive", id="zip"),
        pytest.param(b"\x80\x02}q\0X\x06\0\0\0weight", "Python pickle", id="pickle"),
        pytest.param(b"<!DOCTYPE html>\n<html>", "web page", id="html"),
        pytest.param(b'\n <?xml version="1.0"?><Error/>', "web page", id="xml error"),
        pytest.param(b'{"error": "not found"}', "JSON text", id="json"),
        pytest.param(b"\xef\xbf\xbd\x01\0\0\0\0\0\0{", "text conversion", id="text conversion"),
        pytest.param(b"\xff" * 10, "neither a safetensors nor a GGUF file", id="other"),
    ],
)
def test_other_file_is_named_as_what_it_is(read: Read, content: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=rf"model\.safetensors: .*{message}"):
        read(content)


def test_reader_without_sniffing_names_other_files_too(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with FileSource(path) as source, pytest.raises(FormatError, match="git lfs pull"):
        container.read_index(source)


@pytest.mark.parametrize(
    ("content", "kind"), [(framed(b"{}"), "safetensors"), (b"GGUF\x03\0\0\0", "gguf")]
)
def test_sniff_goes_by_content_not_by_name(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with FileSource(path) as source:
        assert sniff.sniff(source) == kind


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


# --- writing --------------------------------------------------------------------------------


def test_header_is_compact_metadata_first_and_padded_to_eight() -> None:
    header = header_bytes([("w", "BF16", (2, 3), 12), ("s", "F32", (), 4)], {"format": "pt"})
    assert header[8:].rstrip(b" ") == (
        b'{"__metadata__":{"format":"pt"},'
        b'"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},'
        b'"s":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}'
    )
    assert len(header) % 8 == 0
    assert len(header) - len(header.rstrip(b" ")) < 8
    assert struct.unpack("<Q", header[:8]) == (len(header) - 8,)


@pytest.mark.parametrize(
    "name",
    ["", 'quo"te', "back\\slash", "line\nbreak\0", "модель", "\U0001f600", "\x7f\u2028", "a/b"],
)
def test_written_header_opens_in_the_reference(name: str) -> None:
    content = header_bytes([(name, "U8", (3,), 3)], {name: name}) + b"abc"
    ((read_name, entry),) = read_by_reference(content)
    assert read_name == name
    assert (entry["dtype"], entry["shape"], bytes(entry["data"])) == ("U8", [3], b"abc")


def test_header_without_metadata() -> None:
    assert header_bytes([], None)[8:].rstrip() == b"{}"


def test_reserved_length_is_filled_exactly(read: Read) -> None:
    shortest = len(header_bytes([("t", "U8", (1,), 1)], {"a": "b"}).rstrip(b" "))
    for length in (shortest, shortest + 1, 4097):
        header = header_bytes([("t", "U8", (1,), 1)], {"a": "b"}, length=length)
        assert len(header) == length
        assert read(header + b"x").metadata == {"a": "b"}


def test_reserved_length_too_small() -> None:
    shortest = len(header_bytes([], {"a": "b"}).rstrip(b" "))
    with pytest.raises(UnweightError, match=f"needs {shortest} bytes, {shortest - 1} are reserved"):
        header_bytes([], {"a": "b"}, length=shortest - 1)


def test_header_above_the_limit_of_the_format() -> None:
    with pytest.raises(UnweightError, match="exceeds"):
        header_bytes([], {}, length=8 + MAX_HEADER_BYTES + 1)


@pytest.mark.parametrize("names", [("a", "a"), ("__metadata__",)])
def test_name_that_is_taken_is_not_written(names: tuple[str, ...]) -> None:
    with pytest.raises(UnweightError, match="already taken"):
        header_bytes([(name, "U8", (1,), 1) for name in names], None)


def test_text_that_is_not_unicode_is_not_written() -> None:
    with pytest.raises(UnweightError, match="not valid Unicode"):
        header_bytes([("\ud800", "U8", (1,), 1)], None)


# --- files reported by users of other tools -------------------------------------------------


def _reported_cases() -> list[Any]:
    index = CASES / "INDEX.json"
    if not index.is_file():
        reason = "no case folder beside the checkout"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
    cases = json.loads(index.read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if case["id"][:3] in {"st-", "sd-"}]


@pytest.mark.parametrize("case", _reported_cases())
def test_reported_case(case: dict[str, str]) -> None:
    path = CASES / case["path"]
    if case["expected"] == "reject":
        with pytest.raises(FormatError) as caught:
            _read_everything(path)
        assert str(caught.value).isprintable()
    else:
        _read_everything(path)


def _read_everything(path: Path) -> None:
    files = [path]
    if path.is_dir():
        snapshot = open_snapshot(path)
        files = [snapshot.resolve(model) for model in snapshot.models]
    for file in files:
        with FileSource(file) as source:
            sniff.read_index(source)
