"""The safetensors reader: what it accepts, and what it calls files that are something else."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors

from tests.support.reported import CASES, reported_cases
from tests.support.safetensors_files import (
    file_of,
    framed,
    read_by_reference,
    refused_by_reference,
    tensor,
    write_and_read,
)
from unweight.containers import registry
from unweight.containers import safetensors as container
from unweight.containers.base import ContainerIndex, FileSource
from unweight.containers.directories.snapshot import open_snapshot
from unweight_codecs.errors import FormatError
from unweight_codecs.tensor_spec import DTYPES

Read = Callable[[bytes], ContainerIndex]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the index of a file with the given content."""
    return partial(write_and_read, tmp_path / "model.safetensors")


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
        assert registry.sniff(source).name == kind


# --- files reported by users of other tools -------------------------------------------------


@pytest.mark.parametrize("case", reported_cases("st-", "sd-"))
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
            registry.read_index(source)
