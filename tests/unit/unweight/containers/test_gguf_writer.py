"""The GGUF header writer, and the keys of a source that an Unweight file shows."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.scripts import gguf_dump

from unweight.containers.gguf.cursor import MAX_HEADER_BYTES
from unweight.containers.gguf.header import parse_header
from unweight.containers.gguf.reader import parse_index
from unweight.containers.gguf.writer import (
    MAX_VISIBLE_ELEMENTS,
    PADDING_KEY,
    NewTensor,
    encode_string_key,
    header_bytes,
    visible_keys,
)
from unweight_codecs.errors import FormatError, UnweightError

Q4_0, I8 = 2, 24  # ids of GGML types

LONG = MAX_VISIBLE_ELEMENTS + 1
ELEMENTS: dict[GGUFValueType, Any] = {
    GGUFValueType.UINT8: 1,
    GGUFValueType.BOOL: True,
    GGUFValueType.INT32: -5,
    GGUFValueType.UINT64: 2**40,
    GGUFValueType.FLOAT32: 0.5,
    GGUFValueType.FLOAT64: 0.25,
    GGUFValueType.STRING: "token",
    GGUFValueType.ARRAY: [1, 2],
}


def peer_header(path: Path, values: Sequence[tuple[str, Any, Any, Any]], arch: str = "") -> bytes:
    """Return a header without tensors as the gguf package writes it."""
    writer = GGUFWriter(path, arch or "llama")
    if not arch:
        writer.kv_data[0].clear()
    for name, value, value_type, element_type in values:
        writer.add_key_value(name, value, value_type, element_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def shown_by_peer(path: Path, content: bytes) -> dict[str, Any]:
    path.write_bytes(content)
    reader = GGUFReader(path)
    return {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.") and name != PADDING_KEY
    }


def visible(header: bytes) -> list[bytes]:
    return visible_keys(header, parse_header(header))


# --- headers --------------------------------------------------------------------------------


def test_written_header_opens_in_the_reference(tmp_path: Path) -> None:
    tensors: list[NewTensor] = [
        (b"coded", I8, (5,)),
        ("модель".encode(), Q4_0, (64, 3)),
        (b"none", I8, (0,)),
        (b"last", I8, (2, 1, 1, 2)),
    ]
    header = header_bytes([encode_string_key("general.architecture", "unweight")], tensors)
    content = header + b"12345" + bytes(27) + bytes(range(108)) + bytes(20) + b"abcd"
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    reader = GGUFReader(path)
    found = {tensor.name: (tensor.data_offset, tensor.data.tobytes()) for tensor in reader.tensors}
    assert found == {
        "coded": (len(header), b"12345"),
        "модель": (len(header) + 32, bytes(range(108))),
        "none": (len(header) + 160, b""),
        "last": (len(header) + 160, b"abcd"),
    }
    assert [tensor.shape.tolist() for tensor in reader.tensors] == [[5], [64, 3], [0], [2, 1, 1, 2]]
    index = parse_index(header, len(content))
    assert {entry.spec.name: entry.offset for entry in index.tensors} == {
        name: offset for name, (offset, _) in found.items()
    }


def test_string_key_is_as_the_reference_writes_it(tmp_path: Path) -> None:
    value = "line\n模型\0 \U0001f600"
    header = peer_header(tmp_path / "m", [("k", value, GGUFValueType.STRING, None)])
    assert header[24:].startswith(encode_string_key("k", value))


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_header_has_the_length_wanted(alignment: int) -> None:
    tensors: list[NewTensor] = [(b"t", I8, (3,))]
    keys = [encode_string_key("a", "b")]
    if alignment != 32:
        number = struct.pack("<II", 4, alignment)
        keys.append(struct.pack("<Q17s", 17, b"general.alignment") + number)
    least = header_bytes(keys, tensors, alignment)
    assert len(least) % alignment == 0
    for length in (len(least), len(least) + alignment, len(least) + 10 * alignment):
        header = header_bytes(keys, tensors, alignment, length=length)
        assert len(header) == length
        index = parse_index(header, length + 3)
        assert index.tensors[0].offset == length
        assert (index.metadata or {})["a"] == "b"


def test_header_longer_than_was_reserved() -> None:
    keys = [encode_string_key("a", "b" * 100)]
    least = len(header_bytes(keys, []))
    with pytest.raises(UnweightError, match=rf"header needs \d+ bytes, {least - 32} are reserved"):
        header_bytes(keys, [], length=least - 32)


def test_header_that_does_not_end_at_the_alignment() -> None:
    with pytest.raises(UnweightError, match="does not end at the alignment 32"):
        header_bytes([], [], length=1000)


def test_header_above_the_limit() -> None:
    with pytest.raises(UnweightError, match="exceeds"):
        header_bytes([], [], length=MAX_HEADER_BYTES + 32)


def test_name_that_is_taken_is_not_written() -> None:
    with pytest.raises(UnweightError, match="tensor 't' cannot be written: already taken"):
        header_bytes([], [(b"t", I8, (1,)), (b"t", I8, (2,))])
    with pytest.raises(UnweightError, match="key 'k' cannot be written"):
        header_bytes([encode_string_key("k", "1"), encode_string_key("k", "2")], [])
    with pytest.raises(UnweightError, match=rf"key '{PADDING_KEY}' cannot be written"):
        header_bytes([encode_string_key(PADDING_KEY, "")], [])


def test_tensor_of_more_dimensions_than_the_format_has() -> None:
    with pytest.raises(UnweightError, match="tensor 't' has 5 dimensions"):
        header_bytes([], [(b"t", I8, (1, 1, 1, 1, 1))])


# --- keys that stay visible -----------------------------------------------------------------


def test_architecture_is_replaced_and_kept(tmp_path: Path) -> None:
    values = [("general.name", "Model", GGUFValueType.STRING, None)]
    source = peer_header(tmp_path / "source", values, arch="llama")
    shown = shown_by_peer(tmp_path / "packed", header_bytes(visible(source), []))
    assert shown == {
        "general.architecture": "unweight",
        "unweight.architecture": "llama",
        "general.name": "Model",
    }
    assert list(shown) == ["general.architecture", "unweight.architecture", "general.name"]


def test_architecture_is_added_where_there_is_none(tmp_path: Path) -> None:
    source = peer_header(tmp_path / "source", [("k", 7, GGUFValueType.INT8, None)])
    shown = shown_by_peer(tmp_path / "packed", header_bytes(visible(source), []))
    assert shown == {"general.architecture": "unweight", "k": 7}


def test_architecture_of_another_type_keeps_its_type(tmp_path: Path) -> None:
    values = [("general.architecture", 7, GGUFValueType.INT8, None)]
    source = peer_header(tmp_path / "source", values)
    shown = shown_by_peer(tmp_path / "packed", header_bytes(visible(source), []))
    assert shown["general.architecture"] == "unweight"
    assert shown["unweight.architecture"] == 7


@pytest.mark.parametrize("element_type", ELEMENTS, ids=lambda element_type: element_type.name)
def test_long_array_is_shown_as_an_empty_one(tmp_path: Path, element_type: GGUFValueType) -> None:
    array = GGUFValueType.ARRAY
    values = [
        ("long", [ELEMENTS[element_type]] * LONG, array, element_type),
        ("short", [ELEMENTS[element_type]] * (LONG - 1), array, element_type),
        ("last", "reached", GGUFValueType.STRING, None),
    ]
    source = peer_header(tmp_path / "source", values, arch="llama")
    packed = header_bytes(visible(source), [])
    original = shown_by_peer(tmp_path / "source", source)
    shown = shown_by_peer(tmp_path / "packed", packed)
    assert shown["long"] == []
    assert shown["short"] == original["short"]
    assert shown["last"] == "reached"
    found = {key.name: key for key in parse_header(packed).keys}
    assert (found[b"long"].array_type, found[b"long"].array_count) == (element_type.value, 0)


def test_alignment_stays(tmp_path: Path) -> None:
    values = [("general.alignment", 128, GGUFValueType.UINT32, None)]
    source = peer_header(tmp_path / "source", values, arch="llama")
    packed = header_bytes(visible(source), [(b"t", I8, (3,))], 128) + b"abc"
    path = tmp_path / "packed"
    path.write_bytes(packed)
    reader = GGUFReader(path)
    assert (reader.alignment, reader.tensors[0].data.tobytes()) == (128, b"abc")


@pytest.mark.parametrize("name", ["unweight.manifest", "unweight.architecture", "unweight."])
def test_source_with_keys_of_unweight_is_refused(tmp_path: Path, name: str) -> None:
    source = peer_header(tmp_path / "source", [(name, "x", GGUFValueType.STRING, None)])
    with pytest.raises(FormatError, match=rf"key '{name}' .*compressed by Unweight before"):
        visible(source)


@pytest.mark.parametrize("options", [[], ["--json", "--json-array"], ["--markdown"]])
def test_dump_tool_of_the_reference_shows_every_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    array = GGUFValueType.ARRAY
    values = [
        ("tokenizer.ggml.tokens", ["piece"] * 500, array, GGUFValueType.STRING),
        ("tokenizer.ggml.scores", np.zeros(500).tolist(), array, GGUFValueType.FLOAT32),
        ("llama.block_count", 2, GGUFValueType.UINT32, None),
        ("tokenizer.chat_template", "{{ x }}\n" * 400, GGUFValueType.STRING, None),
    ]
    source = peer_header(tmp_path / "source", values, arch="llama")
    keys = [encode_string_key("unweight.manifest", "{}"), *visible(source)]
    header = header_bytes(keys, [(b"blk.0.attn_q.weight", I8, (100,))])
    path = tmp_path / "model.gguf"
    path.write_bytes(header + bytes(100))
    monkeypatch.setattr("sys.argv", ["gguf-dump", str(path), *options])
    gguf_dump.main()
    out = capsys.readouterr().out
    for name in [name for name, *_ in values] + ["unweight.manifest", "unweight.architecture"]:
        assert name in out
    assert "blk.0" in out
