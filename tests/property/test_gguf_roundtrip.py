"""Both readers read the same from files of both writers, and damage is refused, not crashed on."""

import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import gguf_files
from tests.support.generated import UNTIMED
from tests.support.gguf_files import unit_bytes
from unweight.archive.writer import MIN_CODED_BYTES
from unweight.containers.base import ContainerIndex, FileSource
from unweight.containers.gguf.ggml_types import GGML_TYPES, type_id_of
from unweight.containers.gguf.header import align, parse_header
from unweight.containers.gguf.reader import parse_index, read_index
from unweight.containers.gguf.writer import PADDING_KEY, header_bytes, visible_keys
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight_codecs.errors import FormatError
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_spec import DType

pytestmark = pytest.mark.usefixtures("without_fsync")

PEER_TYPES = [GGML_TYPES[peer.value] for peer in GGMLQuantizationType]

VALUES: dict[GGUFValueType, st.SearchStrategy[Any]] = {
    GGUFValueType.UINT8: st.integers(0, 2**8 - 1),
    GGUFValueType.INT8: st.integers(-(2**7), 2**7 - 1),
    GGUFValueType.UINT16: st.integers(0, 2**16 - 1),
    GGUFValueType.INT16: st.integers(-(2**15), 2**15 - 1),
    GGUFValueType.UINT32: st.integers(0, 2**32 - 1),
    GGUFValueType.INT32: st.integers(-(2**31), 2**31 - 1),
    GGUFValueType.UINT64: st.integers(0, 2**64 - 1),
    GGUFValueType.INT64: st.integers(-(2**63), 2**63 - 1),
    GGUFValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    GGUFValueType.FLOAT64: st.floats(allow_nan=False),
    GGUFValueType.BOOL: st.booleans(),
    GGUFValueType.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
}
FORMATS = "BbHhIif?..Qqd"  # of struct, by number of the value type


@dataclass(frozen=True)
class Array:
    """An array to write; its elements are arrays where ``element_type`` says so."""

    element_type: GGUFValueType
    elements: list[Any]


@dataclass(frozen=True)
class Tensor:
    """A tensor to write."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def data(self) -> bytes:
        """Bytes that differ from their neighbours, but compress."""
        size = self.dtype.nbytes(self.shape)
        return bytes(index * index % 7 << 4 | index % 11 for index in range(size))


Keys = dict[str, tuple[GGUFValueType, Any]]
Model = tuple[Keys, list[Tensor], int]


@st.composite
def arrays(draw: st.DrawFn, depth: int = 2) -> Array:
    element_type = draw(st.sampled_from(list(GGUFValueType)))
    if element_type is not GGUFValueType.ARRAY:
        return Array(element_type, draw(st.lists(VALUES[element_type], max_size=5)))
    inner = arrays(depth - 1) if depth else st.builds(Array, st.just(element_type), st.just([]))
    return Array(element_type, draw(st.lists(inner, max_size=3)))


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Draw keys, tensors and an alignment."""
    keys: Keys = {}
    names = VALUES[GGUFValueType.STRING].filter(bool)
    for name in draw(st.lists(names, unique=True, max_size=5)):
        value_type = draw(st.sampled_from(list(GGUFValueType)))
        is_array = value_type is GGUFValueType.ARRAY
        keys[name] = (value_type, draw(arrays() if is_array else VALUES[value_type]))
    alignment = draw(st.sampled_from([32, 32, 8, 64, 512]))
    if alignment != 32:
        keys["general.alignment"] = (GGUFValueType.UINT32, alignment)
    tensors = []
    for name in draw(st.lists(names, unique=True, max_size=5)):
        dtype = draw(st.sampled_from(PEER_TYPES))
        outer = draw(st.lists(st.integers(0, 3), max_size=3))
        row = dtype.block_elements * draw(st.integers(0, 3))
        tensors.append(Tensor(name, dtype, (*outer, row)))
    return keys, tensors, alignment


# The peer's writer has no empty arrays and no arrays in arrays of other than plain integers.
def writable_by_peer(model: Model) -> bool:
    return all(
        not isinstance(value, Array)
        or (value.elements and value.element_type is not GGUFValueType.ARRAY)
        for _, value in model[0].values()
    )


def encoded(value_type: GGUFValueType, value: Any) -> bytes:  # noqa: ANN401 - any GGUF value
    if isinstance(value, Array):
        elements = b"".join(encoded(value.element_type, element) for element in value.elements)
        return struct.pack("<IQ", value.element_type, len(value.elements)) + elements
    if value_type is GGUFValueType.STRING:
        text: bytes = value.encode()
        return struct.pack("<Q", len(text)) + text
    return struct.pack("<" + FORMATS[value_type], value)


def written_by_peer(path: Path, model: Model) -> bytes:
    keys, tensors, _ = model
    writer = GGUFWriter(path, "")
    writer.kv_data[0].clear()
    for name, (value_type, value) in keys.items():
        if isinstance(value, Array):
            writer.add_key_value(name, value.elements, value_type, value.element_type)
        elif name == "general.alignment":
            writer.add_custom_alignment(value)
        else:
            writer.add_key_value(name, value, value_type)
    for tensor in tensors:
        raw = np.frombuffer(tensor.data, np.uint8)
        rows = raw.reshape(*tensor.shape[:-1], tensor.dtype.nbytes(tensor.shape[-1:]))
        writer.add_tensor(
            tensor.name, rows, raw_dtype=GGMLQuantizationType(type_id_of(tensor.dtype.name))
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def encoded_keys(keys: Keys) -> list[bytes]:
    return [
        encoded(GGUFValueType.STRING, name)
        + struct.pack("<I", value_type)
        + encoded(value_type, value)
        for name, (value_type, value) in keys.items()
    ]


def written_by_us(path: Path, model: Model) -> bytes:
    keys, tensors, alignment = model
    table = [
        (tensor.name.encode(), type_id_of(tensor.dtype.name), tensor.shape[::-1])
        for tensor in tensors
    ]
    content = header_bytes(encoded_keys(keys), table, alignment)
    for tensor in tensors:
        content += tensor.data + bytes(-len(tensor.data) % alignment)
    path.write_bytes(content)
    return content


def index_of(path: Path) -> ContainerIndex:
    with FileSource(path) as source:
        return read_index(source)


def check_same(write: Callable[[Path, Model], bytes], model: Model) -> None:
    """Check that both readers find in the written file what was to be written."""
    keys, tensors, alignment = model
    # A function-scoped fixture would be shared by all examples, hence a folder of its own here.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        content = write(path, model)
        index = index_of(path)
        peer = GGUFReader(path)
        placed = {tensor.name: tensor for tensor in peer.tensors}
        shown = {name: field for name, field in peer.fields.items() if "GGUF." not in name}
        assert peer.data_offset == align(len(index.header), alignment)
        assert placed.keys() == {entry.spec.name for entry in index.tensors}
        for entry in index.tensors:
            other = placed[entry.spec.name]
            assert (other.tensor_type.name, other.n_bytes) == (entry.spec.dtype, entry.nbytes)
            assert tuple(other.shape.tolist()) == entry.spec.shape[::-1]
            if entry.nbytes:
                assert other.data_offset == entry.offset
        parsed = parse_header(index.header)
        for key in parsed.keys:
            field = shown[key.name.decode()]
            assert field.offset == key.start
            assert field.types[0].value == key.value_type
        del peer, placed, shown  # they hold the file open
    found = {entry.spec.name: entry for entry in index.tensors}
    for tensor in tensors:
        entry = found[tensor.name]
        assert (entry.spec.dtype, entry.spec.shape) == (tensor.dtype.name, tensor.shape)
        assert content[entry.offset : entry.offset + entry.nbytes] == tensor.data
    spans = {key.name.decode(): content[key.type_start + 4 : key.end] for key in parsed.keys}
    spans.pop(PADDING_KEY, None)
    assert spans == {name: encoded(*value) for name, value in keys.items()}
    assert parsed.alignment == alignment
    assert index == parse_index(index.header, len(content))


@UNTIMED
@given(model=models().filter(writable_by_peer))
def test_file_of_the_reference_is_read_the_same(model: Model) -> None:
    check_same(written_by_peer, model)


@UNTIMED
@given(model=models())
def test_own_file_is_read_the_same(model: Model) -> None:
    check_same(written_by_us, model)


@UNTIMED
@given(model=models())
def test_visible_keys_make_a_file_that_the_reference_reads(model: Model) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        keys = encoded_keys(model[0])
        header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys)
        path.write_bytes(header_bytes(visible_keys(header, parse_header(header)), [], model[2]))
        peer = GGUFReader(path)
        names = [name for name in peer.fields if "GGUF." not in name and name != PADDING_KEY]
        assert peer.fields["general.architecture"].contents() == "unweight"
        del peer
    assert [name for name in names if name in model[0]] == list(model[0])


@UNTIMED
@given(model=models(), data=st.data())
def test_damaged_file_is_refused_or_still_whole(model: Model, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        content = bytearray(written_by_us(path, model))
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(content)))
            end = at + data.draw(st.integers(0, 8))
            content[at:end] = data.draw(st.binary(max_size=9))
        path.write_bytes(content)
        check_refused_or_whole(path)


@UNTIMED
@given(
    counts=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    rest=st.lists(
        st.binary(max_size=6)
        | st.integers(0, 13).map(lambda number: struct.pack("<I", number))
        | st.integers(0, 4).map(lambda number: struct.pack("<Q", number)),
        max_size=40,
    ),
)
def test_arbitrary_bytes_are_refused_or_whole(counts: tuple[int, int], rest: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *counts) + b"".join(rest))
        check_refused_or_whole(path)


@settings(UNTIMED, max_examples=50)
@given(
    model=models(),
    large=st.sampled_from(list(GGML_TYPES.values())),
    preset=st.sampled_from(list(PRESETS)),
    filler=st.binary(min_size=1, max_size=3),
    last_padding=st.booleans(),
)
def test_operations_restore_the_file(
    model: Model, large: DType, preset: str, filler: bytes, last_padding: bool
) -> None:
    keys, tensors, alignment = model
    rows = MIN_CODED_BYTES // unit_bytes(large) + 1
    weight = Tensor("a large tensor", large, (rows, large.block_elements))
    content = gguf_files.model_of(
        encoded_keys(keys),
        [
            gguf_files.NewTensor(
                each.name.encode(), type_id_of(each.dtype.name), each.shape[::-1], each.data
            )
            for each in (*tensors, weight)
        ],
        alignment,
        filler=filler,
        last_padding=last_padding,
    )
    with tempfile.TemporaryDirectory() as folder:
        source, coded, restored = (Path(folder, name) for name in ("source", "coded", "restored"))
        source.write_bytes(content)
        compress(source, coded, CompressOptions(preset, threads=1), NoProgress())
        decompress(coded, restored, threads=1, force=False, progress=NoProgress())
        assert restored.read_bytes() == content


def check_refused_or_whole(path: Path) -> None:
    try:
        index = index_of(path)
    except FormatError as error:
        assert str(error).isprintable()  # noqa: PT017 - both outcomes are fine
        return
    assert index.header == path.read_bytes()[: len(index.header)]
    spans = [(entry.offset, entry.nbytes) for entry in index.tensors] + list(index.gaps())
    covered = len(index.header)
    for offset, length in sorted(spans):
        assert offset == covered
        covered += length
    assert covered == index.size
