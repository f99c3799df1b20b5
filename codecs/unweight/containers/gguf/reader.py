"""The GGUF container: a strict reader of what precedes and surrounds the tensor data."""

from typing import Final

from unweight.containers.base import ContainerIndex, FileSource, TensorEntry
from unweight.containers.foreign import HEAD_BYTES, foreign_file
from unweight.containers.gguf.cursor import Cursor
from unweight.containers.gguf.ggml_types import ggml_type
from unweight.containers.gguf.header import (
    MAGIC,
    TITLE,
    GgufHeader,
    TensorInfo,
    parse_header,
    text_of,
    walk_header,
)
from unweight.containers.gguf.values import ValueType
from unweight_codecs.errors import FormatError, quoted
from unweight_codecs.tensor_spec import TensorSpec

MAX_TEXT_BYTES: Final = 4096  # of a metadata value; what is longer is a chat template or a licence


def starts_like_gguf(head: bytes) -> bool:
    """Tell whether ``head``, the first bytes of a file, begins with the magic."""
    return head.startswith(MAGIC)


def read_index(source: FileSource) -> ContainerIndex:
    """Read and check everything but the tensor data of a GGUF file.

    Returns tensors in the order of their data; those without bytes come before others at the same
    place. Raises FormatError, naming the file, for every deviation from the format.
    """
    try:
        head = source.read_at(0, min(source.size, HEAD_BYTES))
        if not starts_like_gguf(head):
            raise foreign_file(head, [TITLE])
        cursor = Cursor(source.read_at, source.size)
        parsed = walk_header(cursor)
        length = min(parsed.data_start, source.size)
        header = bytes(memoryview(cursor.data)[:length])
        header += source.read_at(len(header), length - len(header))
        return _index(header, parsed, source.size)
    except FormatError as error:
        raise FormatError(
            f"{source.path}: {error.message.removeprefix(f'{source.path}: ')}", hint=error.hint
        ) from None


def parse_index(header: bytes, size: int) -> ContainerIndex:
    """Parse ``header``, all bytes before the tensor data of a file of ``size`` bytes.

    Raises FormatError as ``read_index`` does, without the name of a file.
    """
    parsed = parse_header(header)
    if len(header) != min(parsed.data_start, size):
        raise FormatError("the header has another length than its contents")
    return _index(header, parsed, size)


def _index(header: bytes, parsed: GgufHeader, size: int) -> ContainerIndex:
    tensors = [_entry(tensor, parsed, size) for tensor in parsed.tensors]
    tensors.sort(key=lambda entry: (entry.offset, entry.nbytes))
    _check_coverage(tensors, parsed.alignment, len(header), size)
    return ContainerIndex("gguf", header, _metadata(header, parsed), tuple(tensors), size)


def _entry(tensor: TensorInfo, parsed: GgufHeader, size: int) -> TensorEntry:
    name = text_of(tensor.name)
    shape = tensor.ne[::-1]
    try:
        dtype = ggml_type(tensor.type_id)
        nbytes = dtype.nbytes(shape)
    except FormatError as error:
        raise FormatError(f"tensor {quoted(name)}: {error.message}", hint=error.hint) from None
    if tensor.offset % parsed.alignment:
        raise FormatError(
            f"tensor {quoted(name)}: begins at data byte {tensor.offset}, which is no multiple of "
            f"the alignment {parsed.alignment}"
        )
    offset = parsed.data_start + tensor.offset
    if nbytes == 0:
        offset = min(offset, size)  # the padding before it may be missing at the end of a file
    return TensorEntry(TensorSpec(name, dtype.name, shape), offset, nbytes)


def _check_coverage(tensors: list[TensorEntry], alignment: int, start: int, size: int) -> None:
    """Check that only padding lies between the sorted tensors, from ``start`` to ``size``."""
    covered = start
    for entry in tensors:
        name = quoted(entry.spec.name)
        end = entry.offset + entry.nbytes
        if entry.offset < covered:
            raise FormatError(f"tensor {name}: overlaps another tensor")
        if end > size:
            raise FormatError(
                f"tensor {name}: {end - size} bytes missing at the end",
                hint="the file is incomplete: download or copy it again",
            )
        if entry.offset - covered > alignment:
            raise FormatError(
                f"tensor {name}: {entry.offset - covered} bytes before it belong to no tensor"
            )
        covered = end
    if size - covered > alignment:
        raise FormatError(f"{size - covered} bytes after the last tensor belong to none")


def _metadata(header: bytes, parsed: GgufHeader) -> dict[str, str] | None:
    metadata = {}
    for key in parsed.keys:
        if key.value_type is ValueType.STRING:
            value = header[key.string_start : key.end]
            metadata[text_of(key.name)] = text_of(_first_characters(value, MAX_TEXT_BYTES))
    return metadata or None


def _first_characters(value: bytes, limit: int) -> bytes:
    """Return at most ``limit`` bytes that do not end inside a UTF-8 character."""
    if len(value) <= limit:
        return value
    end = limit
    while end > limit - 4 and value[end] & 0xC0 == 0x80:  # a continuation byte
        end -= 1
    return value[:end]
