"""The safetensors header writer: what it writes opens in the reference library."""

import struct
from pathlib import Path

import pytest

from tests.support.safetensors_files import read_by_reference, write_and_read
from unweight.containers.safetensors import MAX_HEADER_BYTES, header_bytes
from unweight_codecs.errors import UnweightError


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


def test_reserved_length_is_filled_exactly(tmp_path: Path) -> None:
    shortest = len(header_bytes([("t", "U8", (1,), 1)], {"a": "b"}).rstrip(b" "))
    for length in (shortest, shortest + 1, 4097):
        header = header_bytes([("t", "U8", (1,), 1)], {"a": "b"}, length=length)
        assert len(header) == length
        index = write_and_read(tmp_path / "model.safetensors", header + b"x")
        assert index.metadata == {"a": "b"}


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
