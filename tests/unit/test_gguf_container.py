"""The GGUF reader: what it accepts, and one test per malformation."""

import json
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from unweight_codecs.containers import gguf_cursor
from unweight_codecs.containers.base import ContainerIndex, FileSource
from unweight_codecs.containers.gguf import MAX_TEXT_BYTES, gaps, parse_index, read_index
from unweight_codecs.containers.gguf_header import (
    MAX_ALIGNMENT,
    MAX_KEYS,
    MAX_TENSORS,
    parse_header,
)
from unweight_codecs.containers.gguf_values import MAX_ARRAY_DEPTH, ValueType, integer_value
from unweight_codecs.errors import FormatError

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"

F32, Q4_0, I8 = 0, 2, 24  # ids of GGML types

Read = Callable[[bytes], ContainerIndex]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the index of a file with the given content."""

    def read_content(content: bytes) -> ContainerIndex:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        with FileSource(path) as source:
            return read_index(source)

    return read_content


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def key(name: bytes, value_type: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", value_type) + value


def text(name: bytes, value: bytes) -> bytes:
    return key(name, ValueType.STRING, string(value))


def array(element_type: int, count: int, elements: bytes = b"") -> bytes:
    return struct.pack("<IQ", element_type, count) + elements


def aligned(alignment: int) -> bytes:
    return key(b"general.alignment", ValueType.UINT32, struct.pack("<I", alignment))


def tensor(
    name: bytes = b"t", ne: Sequence[int] = (8,), offset: int = 0, type_id: int = F32
) -> bytes:
    extents = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
    return string(name) + extents + struct.pack("<IQ", type_id, offset)


def start(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def file_of(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    alignment: int = 32,
    version: int = 3,
) -> bytes:
    header = start(len(tensors), len(keys), version) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data


# --- what is accepted -----------------------------------------------------------------------


def test_index_lists_tensors_with_offsets_from_the_start_of_the_file(read: Read) -> None:
    content = file_of(
        [text(b"general.architecture", b"llama"), key(b"n", ValueType.UINT8, b"\x07")],
        [tensor(b"w", (64, 3, 2), 0, Q4_0), tensor(b"b", (), 224)],
        bytes(range(216)) + bytes(8) + b"abcd",
    )
    index = read(content)
    quantised, scalar = index.tensors
    assert index.container == "gguf"
    assert index.metadata == {"general.architecture": "llama"}
    assert index.size == len(content)
    assert index.header == content[:-228]
    assert (quantised.spec.name, quantised.spec.dtype) == ("w", "Q4_0")
    assert quantised.spec.shape == (2, 3, 64)
    assert (quantised.offset, quantised.nbytes) == (len(content) - 228, 216)
    assert (scalar.spec.dtype, scalar.spec.shape) == ("F32", ())
    assert (scalar.offset, scalar.nbytes) == (len(content) - 4, 4)
    assert gaps(index) == ((len(content) - 12, 8),)
    assert parse_index(index.header, index.size) == index


@pytest.mark.parametrize("version", [2, 3])
def test_version_is_kept(read: Read, version: int) -> None:
    content = file_of(tensors=[tensor()], data=bytes(32), version=version)
    assert parse_header(read(content).header).version == version


def test_table_order_and_data_order_may_differ(read: Read) -> None:
    content = file_of(tensors=[tensor(b"b", offset=32), tensor(b"a")], data=bytes(64))
    index = read(content)
    assert [entry.spec.name for entry in index.tensors] == ["a", "b"]
    assert [info.name for info in parse_header(index.header).tensors] == [b"b", b"a"]


def test_empty_tensors_come_before_their_neighbour_and_in_table_order(read: Read) -> None:
    tensors = [
        tensor(b"b", offset=32),
        tensor(b"z", (0,), 32),
        tensor(b"a"),
        tensor(b"e", (7, 0), 32),
        tensor(b"y", (0,), 64),
    ]
    names = [entry.spec.name for entry in read(file_of(tensors=tensors, data=bytes(64))).tensors]
    assert names == ["a", "z", "e", "b", "y"]


def test_file_without_tensor_bytes_may_end_before_the_aligned_data_start(read: Read) -> None:
    content = start(1) + tensor(ne=(4, 0))
    index = read(content)
    assert index.header == content
    assert index.tensors[0].offset == index.size == len(content)
    assert gaps(index) == ()
    assert parse_index(index.header, index.size) == index


def test_file_of_nothing(read: Read) -> None:
    index = read(start())
    assert (index.header, index.metadata, index.tensors) == (start(), None, ())


def test_every_value_type_is_stepped_over(read: Read) -> None:
    sizes = {1: "UINT8 INT8 BOOL", 2: "UINT16 INT16", 4: "UINT32 INT32 FLOAT32"}
    sizes[8] = "UINT64 INT64 FLOAT64"
    types = [(ValueType[name], size) for size, names in sizes.items() for name in names.split()]
    assert {value_type for value_type, _ in types} == {*ValueType} - {
        ValueType.STRING,
        ValueType.ARRAY,
    }
    keys = []
    for value_type, size in types:
        keys.append(key(b"one " + value_type.name.encode(), value_type, b"\xff" * size))
        many = array(value_type, 3, b"\xff" * 3 * size)
        keys.append(key(b"many " + value_type.name.encode(), ValueType.ARRAY, many))
    strings = string(b"") + string(b"\xff\0") + string(b"x" * 300)
    keys.append(key(b"strings", ValueType.ARRAY, array(ValueType.STRING, 3, strings)))
    keys.append(key(b"none", ValueType.ARRAY, array(ValueType.STRING, 0)))
    keys.append(text(b"last", b"reached"))
    content = file_of(keys)
    parsed = parse_header(content)
    assert read(content).metadata == {"last": "reached"}
    assert [content[found.start : found.end] for found in parsed.keys] == keys
    assert content[parsed.keys[-1].string_start : parsed.keys[-1].end] == b"reached"
    by_name = {found.name: found for found in parsed.keys}
    assert by_name[b"many INT16"].array_type is ValueType.INT16
    assert by_name[b"strings"].array_count == 3
    assert by_name[b"one INT16"].array_type is None
    assert integer_value(content, by_name[b"one INT16"]) == -1
    assert integer_value(content, by_name[b"one UINT64"]) == 2**64 - 1
    assert integer_value(content, by_name[b"one FLOAT32"]) is None


def test_arrays_in_arrays(read: Read) -> None:
    inner = [
        array(ValueType.INT32, 2, bytes(8)),
        array(ValueType.STRING, 1, string(b"x")),
        array(ValueType.ARRAY, 1, array(ValueType.UINT8, 0)),
    ]
    nested = key(b"n", ValueType.ARRAY, array(ValueType.ARRAY, 3, b"".join(inner)))
    content = file_of([nested, text(b"last", b"reached")])
    assert read(content).metadata == {"last": "reached"}
    found = parse_header(content).keys[0]
    assert (found.array_type, found.array_count) == (ValueType.ARRAY, 3)


def test_text_that_is_not_utf8_is_shown_escaped(read: Read) -> None:
    content = file_of([text(b"k\xff", b"v\xfe\xc3\xa9")], [tensor(b"t\x80")], bytes(32))
    index = read(content)
    assert index.metadata == {"k\\xff": "v\\xfeé"}
    assert index.tensors[0].spec.name == "t\\x80"
    assert parse_header(index.header).tensors[0].name == b"t\x80"


@pytest.mark.parametrize("shift", range(4))
def test_long_text_is_shown_up_to_a_whole_character(read: Read, shift: int) -> None:
    value = "x" * shift + "\U0001f600" * (MAX_TEXT_BYTES // 4 + 1)
    shown = (read(file_of([text(b"k", value.encode())])).metadata or {})["k"]
    assert value.startswith(shown)
    assert MAX_TEXT_BYTES - 4 < len(shown.encode()) <= MAX_TEXT_BYTES


@pytest.mark.parametrize("alignment", [1, 2, 8, 64, 4096, MAX_ALIGNMENT])
def test_custom_alignment(read: Read, alignment: int) -> None:
    second = max(8, alignment)
    tensors = [tensor(b"a", (2,)), tensor(b"b", (2,), second)]
    data = bytes(second) + bytes(8)
    content = file_of([aligned(alignment)], tensors, data, alignment)
    index = read(content)
    assert len(index.header) % alignment == 0
    assert [entry.offset for entry in index.tensors] == [len(content) - second - 8, index.size - 8]


def test_padding_after_the_last_tensor_may_be_missing_or_whole(read: Read) -> None:
    content = file_of(tensors=[tensor(ne=(1,))], data=b"abcd")
    assert gaps(read(content)) == ()
    assert gaps(read(content + bytes(28))) == ((len(content), 28),)


def test_padding_of_one_whole_alignment_is_recorded(read: Read) -> None:
    tensors = [tensor(b"a", offset=32), tensor(b"b", offset=96)]
    content = file_of(tensors=tensors, data=bytes(160))
    first = len(content) - 160
    assert gaps(read(content)) == ((first, 32), (first + 64, 32), (first + 128, 32))


def test_long_names(read: Read) -> None:
    name = b"blk." * 5000
    content = file_of([text(name, b"v")], [tensor(name)], bytes(32))
    assert read(content).tensors[0].spec.name == name.decode()


class CountingSource(FileSource):
    """Remembers how many bytes were asked for."""

    asked = 0

    def read_at(self, offset: int, length: int) -> bytes:
        self.asked += length
        return super().read_at(offset, length)


def sparse(path: Path, content: bytes, size: int) -> CountingSource:
    path.write_bytes(content)
    os.truncate(path, size)
    return CountingSource(path)


def test_only_the_header_of_a_large_file_is_read(tmp_path: Path) -> None:
    big = 5 << 30
    content = file_of(tensors=[tensor(b"a", (big,), 0, I8), tensor(b"b", (4,), big)])
    with sparse(tmp_path / "model.gguf", content, len(content) + big + 16) as source:
        index = read_index(source)
        assert source.asked < 3 << 20
    assert [entry.offset for entry in index.tensors] == [len(content), len(content) + big]


def test_header_longer_than_one_read(read: Read) -> None:
    tokens = b"".join(string(b"token %d" % number) for number in range(150_000))
    keys = [
        key(b"tokens", ValueType.ARRAY, array(ValueType.STRING, 150_000, tokens)),
        key(b"scores", ValueType.ARRAY, array(ValueType.FLOAT32, 150_000, bytes(600_000))),
        text(b"template", b"x" * 1_500_000),
        text(b"last", b"reached"),
    ]
    content = file_of(keys, [tensor()], bytes(32))
    index = read(content)
    assert index.header == content[:-32]
    assert (index.metadata or {})["last"] == "reached"


# --- files that are something else ----------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"GGU", "has only 3 bytes", id="three bytes"),
        pytest.param(b"FUGG" + bytes(28), "neither a safetensors nor a GGUF", id="reversed"),
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
    with pytest.raises(FormatError, match="neither"):
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
    for keys in (
        [long],
        [key(b"k", ValueType.STRING, long)],
        [key(b"k", ValueType.ARRAY, array(ValueType.STRING, 2, long))],
    ):
        with pytest.raises(FormatError, match="the header goes on to byte"):
            read(file_of([*keys, bytes(64)]))
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


# --- files reported by users of other tools -------------------------------------------------


def _reported_cases() -> list[Any]:
    index = CASES / "INDEX.json"
    if not index.is_file():
        reason = "no case folder beside the checkout"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
    cases = json.loads(index.read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if case["id"][:3] in {"gg-", "gd-"}]


@pytest.mark.parametrize("case", _reported_cases())
def test_reported_case(case: dict[str, str]) -> None:
    path = CASES / case["path"]
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    outcomes = {_outcome(file) for file in files}
    # Whether the parts of a set belong together is not for the reader of one file to say.
    accepted = {case["expected"], case.get("also_ok") if path.is_dir() else case["expected"]}
    assert ("reject" if "reject" in outcomes else "roundtrip") in accepted


def _outcome(path: Path) -> str:
    with FileSource(path) as source:
        try:
            index = read_index(source)
        except FormatError as error:
            assert str(error).isprintable()  # noqa: PT017 - both outcomes are fine
            return "reject"
    assert parse_index(index.header, index.size) == index
    return "roundtrip"
