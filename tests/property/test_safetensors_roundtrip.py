"""Whatever is written is read back the same, and whatever is damaged is refused, not crashed on."""

import math
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support.generated import UNTIMED
from tests.support.safetensors_files import framed, read_by_reference, write_and_read
from unweight.containers.base import ContainerIndex
from unweight.containers.safetensors import header_bytes
from unweight_codecs.errors import FormatError
from unweight_codecs.tensor_spec import DTYPES

Entry = tuple[str, str, tuple[int, ...], int]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = TEXT.filter(lambda name: name != "__metadata__")
METADATA = st.none() | st.dictionaries(TEXT, TEXT, max_size=4)


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Draw the tensors of a file; sub-byte dtypes get a last extent that fills whole bytes."""
    drawn = []
    for name in draw(st.lists(NAMES, unique=True, max_size=6)):
        dtype = draw(st.sampled_from(sorted(DTYPES)))
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
        if DTYPES[dtype].bits % 8:
            shape = (*shape, 4)
        drawn.append((name, dtype, shape, math.prod(shape) * DTYPES[dtype].bits // 8))
    return drawn


def file_content(tensors: list[Entry], metadata: dict[str, str] | None, padding: int = 0) -> bytes:
    header = header_bytes(tensors, metadata)
    if padding:
        header = header_bytes(tensors, metadata, length=len(header) + padding)
    data = bytes(index % 251 for index in range(sum(nbytes for *_, nbytes in tensors)))
    return header + data


def index_of(content: bytes) -> ContainerIndex:
    # A function-scoped fixture would be shared by all examples, hence a file of its own here.
    with tempfile.TemporaryDirectory() as folder:
        return write_and_read(Path(folder, "model.safetensors"), content)


@UNTIMED
@given(tensors=entries(), metadata=METADATA, padding=st.integers(0, 17))
def test_written_file_is_read_back_the_same(
    tensors: list[Entry], metadata: dict[str, str] | None, padding: int
) -> None:
    content = file_content(tensors, metadata, padding)
    index = index_of(content)
    assert index.metadata == metadata
    assert content.startswith(index.header)
    read = [(e.spec.name, e.spec.dtype, e.spec.shape, e.nbytes) for e in index.tensors]
    # Tensors at the same place are told apart by the header, which has the written order.
    assert read == tensors
    covered = len(index.header)
    for entry in index.tensors:
        assert entry.offset == covered
        covered += entry.nbytes
    assert covered == index.size == len(content)


@UNTIMED
@given(tensors=entries(), metadata=METADATA)
def test_reference_library_reads_the_same(
    tensors: list[Entry], metadata: dict[str, str] | None
) -> None:
    content = file_content(tensors, metadata)
    peer = dict(read_by_reference(content))
    assert peer.keys() == {name for name, *_ in tensors}
    for entry in index_of(content).tensors:
        other = peer[entry.spec.name]
        assert other["dtype"] == entry.spec.dtype
        assert tuple(other["shape"]) == entry.spec.shape
        assert bytes(other["data"]) == content[entry.offset : entry.offset + entry.nbytes]


@UNTIMED
@given(tensors=entries(), metadata=METADATA, data=st.data())
def test_damaged_file_is_refused_or_still_valid(
    tensors: list[Entry], metadata: dict[str, str] | None, data: st.DataObject
) -> None:
    content = bytearray(file_content(tensors, metadata))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        stop = start + data.draw(st.integers(0, 3))
        content[start:stop] = data.draw(st.binary(max_size=3))
    _accept_only_what_the_reference_accepts(bytes(content))


JSON_PIECES = st.sampled_from(
    [*'{}[]",:0123456789-.eE \\', "null", "true", "NaN", "\\u", "\\ud800", '"shape"', "[0,0]", "\0"]
)


@UNTIMED
@given(tensors=entries(), data=st.data())
def test_header_with_json_put_in_is_refused_or_still_valid(
    tensors: list[Entry], data: st.DataObject
) -> None:
    content = file_content(tensors, {"format": "pt"})
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(1, len(header)))
        header = header[:at] + data.draw(JSON_PIECES).encode() + header[at:]
    _accept_only_what_the_reference_accepts(framed(header, content[8 + length :]))


@UNTIMED
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_valid(content: bytes) -> None:
    _accept_only_what_the_reference_accepts(content)


def _accept_only_what_the_reference_accepts(content: bytes) -> None:
    try:
        index = index_of(content)
    except FormatError as error:
        assert str(error).isprintable()  # noqa: PT017 - both outcomes are fine
    else:
        peer = dict(read_by_reference(content))
        assert peer.keys() == {entry.spec.name for entry in index.tensors}
