"""The GGUF reader: what it accepts."""

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
from tests.support.reported import CASES, reported_cases
from unweight.containers.base import ContainerIndex, FileSource
from unweight.containers.gguf.header import MAX_ALIGNMENT, parse_header
from unweight.containers.gguf.reader import MAX_TEXT_BYTES, parse_index, read_index
from unweight.containers.gguf.values import ValueType, integer_value
from unweight_codecs.errors import FormatError

Read = Callable[[bytes], ContainerIndex]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the index of a file with the given content."""
    return partial(write_and_read, tmp_path / "model.gguf")


def gaps(index: ContainerIndex) -> tuple[tuple[int, int], ...]:
    """Return (offset, length) of the bytes after the header that belong to no tensor."""
    return tuple(gap for gap in index.gaps() if gap[1])


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


# --- files reported by users of other tools -------------------------------------------------


@pytest.mark.parametrize("case", reported_cases("gg-", "gd-"))
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
