"""The safetensors container: a strict reader of its header, and a writer of headers.

Layout: 8 bytes little-endian header length, that many bytes of JSON, then the tensors' bytes
without holes or overlap up to the end of the file.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from unweight.containers.base import ContainerIndex, FileSource, TensorEntry
from unweight.containers.foreign import HEAD_BYTES, foreign_file
from unweight.containers.strict_json import check_complexity, parse_object
from unweight_codecs.errors import FormatError, UnweightError, quoted
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

TITLE: Final = "safetensors"
MAX_HEADER_BYTES: Final = 100_000_000

_LENGTH_BYTES: Final = 8
_MAX_INTEGER: Final = (1 << 63) - 1
_METADATA_KEY: Final = "__metadata__"
_FIELDS: Final = ("dtype", "shape", "data_offsets")
_AGAIN: Final = "the file is incomplete: download or copy it again"


def starts_like_safetensors(head: bytes) -> bool:
    """Tell whether ``head``, the first bytes of a file, holds a possible header length."""
    length = int.from_bytes(head[:_LENGTH_BYTES], "little")
    return len(head) >= _LENGTH_BYTES and length <= MAX_HEADER_BYTES


def read_index(source: FileSource) -> ContainerIndex:
    """Read and check everything before the tensor data of a safetensors file.

    Returns tensors sorted by where they begin and end; tensors without bytes at the same place
    keep the order of the header. Unknown fields of a tensor are ignored, as the reference library
    does. Raises FormatError, naming the file, for every deviation from the format.
    """
    head = source.read_at(0, min(source.size, HEAD_BYTES))
    try:
        length = _header_length(head, source.size)
    except FormatError as error:
        raise _in_file(source, error) from None
    try:
        return parse_index(source.read_at(0, _LENGTH_BYTES + length), source.size)
    except FormatError as error:
        raise _in_file(source, error) from None


def parse_index(header: bytes, size: int) -> ContainerIndex:
    """Parse ``header``, all bytes before the tensor data of a file of ``size`` bytes.

    Raises FormatError as ``read_index`` does, without the name of a file.
    """
    if _LENGTH_BYTES + int.from_bytes(header[:_LENGTH_BYTES], "little") != len(header):
        raise FormatError("the header has another length than it says")
    metadata, tensors = _parse_header(header, size)
    return ContainerIndex("safetensors", header, metadata, tensors, size)


def header_bytes(
    entries: Sequence[tuple[str, str, tuple[int, ...], int]],
    metadata: Mapping[str, str] | None,
    *,
    length: int | None = None,
) -> bytes:
    """Return everything that precedes the tensor data of a file: length field, JSON, padding.

    Args:
        entries: Name, dtype, shape and size in bytes of each tensor, in file order.
        metadata: The file's string metadata, written first; None to write none.
        length: Total bytes to return; by default the next multiple of 8.

    Raises:
        UnweightError: The header does not fit ``length`` or the format, or a name is used twice.
    """
    document: dict[str, object] = {} if metadata is None else {_METADATA_KEY: dict(metadata)}
    begin = 0
    for name, dtype, shape, nbytes in entries:
        if name in document or name == _METADATA_KEY:
            raise UnweightError(f"tensor name {quoted(name)} cannot be written: already taken")
        end = begin + nbytes
        document[name] = {"dtype": dtype, "shape": shape, "data_offsets": (begin, end)}
        begin = end
    try:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        raise UnweightError("a tensor name or metadata text is not valid Unicode") from None
    check_complexity(text, "header")
    total = -(-(_LENGTH_BYTES + len(text)) // 8) * 8 if length is None else length
    padding = total - _LENGTH_BYTES - len(text)
    if padding < 0:
        raise UnweightError(f"header needs {_LENGTH_BYTES + len(text)} bytes, {total} are reserved")
    if total - _LENGTH_BYTES > MAX_HEADER_BYTES:
        raise UnweightError(
            f"header of {total - _LENGTH_BYTES} bytes exceeds the format's {MAX_HEADER_BYTES}"
        )
    return (total - _LENGTH_BYTES).to_bytes(_LENGTH_BYTES, "little") + text + b" " * padding


def _in_file(source: FileSource, error: FormatError) -> FormatError:
    return FormatError(f"{source.path}: {error.message}", hint=error.hint)


def _header_length(head: bytes, size: int) -> int:
    if not starts_like_safetensors(head):
        raise foreign_file(head, [TITLE])
    length = int.from_bytes(head[:_LENGTH_BYTES], "little")
    if length == 0:
        raise FormatError("the header is empty", hint=_AGAIN)
    missing = _LENGTH_BYTES + length - size
    if missing > 0:
        if head[_LENGTH_BYTES : _LENGTH_BYTES + 1] not in {b"", b"{"}:
            raise foreign_file(head, [TITLE])  # the length is chance: this never was a header
        raise FormatError(f"{missing} bytes missing: the file ends inside its header", hint=_AGAIN)
    return length


def _parse_header(
    header: bytes, size: int
) -> tuple[dict[str, str] | None, tuple[TensorEntry, ...]]:
    text = header[_LENGTH_BYTES:]
    if not text.startswith(b"{"):
        raise FormatError(f"header does not begin with '{{' but with {text[:8]!r}")
    if text.endswith(b"\0"):
        raise FormatError("header is padded with NUL bytes", hint="the format pads with spaces")
    document = parse_object(text, "header")
    metadata = _parse_metadata(document.pop(_METADATA_KEY, None))
    placed = [_parse_tensor(name, fields) for name, fields in document.items()]
    placed.sort(key=lambda tensor: tensor[1:])
    _check_coverage(placed, size - len(header))
    return metadata, tuple(
        TensorEntry(spec, len(header) + begin, end - begin) for spec, begin, end in placed
    )


def _parse_metadata(value: Any) -> dict[str, str] | None:  # noqa: ANN401 - parsed JSON
    if value is None:
        return None
    if not isinstance(value, dict):
        raise FormatError(f"{_METADATA_KEY} is not an object")
    for key, text in value.items():
        if not isinstance(text, str):
            raise FormatError(f"{_METADATA_KEY}: value of {quoted(key)} is not a string")
    return value


def _parse_tensor(name: str, fields: Any) -> tuple[TensorSpec, int, int]:  # noqa: ANN401
    """Return the tensor with its begin and end, counted from the start of the data."""
    if not isinstance(fields, dict):
        raise FormatError(f"tensor {quoted(name)}: not an object")
    for field in _FIELDS:
        if field not in fields:
            raise FormatError(f"tensor {quoted(name)}: no {field}")
    dtype, shape, offsets = (fields[field] for field in _FIELDS)
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FormatError(
            f"tensor {quoted(name)}: unknown dtype {quoted(dtype)}",
            hint=f"known dtypes: {', '.join(DTYPES)}",
        )
    if not _are_sizes(shape):
        raise FormatError(f"tensor {quoted(name)}: shape {quoted(shape)} is not a list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(
            f"tensor {quoted(name)}: data_offsets {quoted(offsets)} is not a begin and an end"
        )
    begin, end = offsets
    spec = TensorSpec(name, dtype, tuple(shape))
    if spec.nbytes != end - begin:
        raise FormatError(
            f"tensor {quoted(name)}: {dtype} of shape {quoted(shape)} takes {spec.nbytes} bytes, "
            f"its data_offsets give {end - begin}"
        )
    return spec, begin, end


def _are_sizes(value: object) -> bool:
    # `type(...) is int`: a bool is an int to isinstance, but not to the format.
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item <= _MAX_INTEGER for item in value
    )


def _check_coverage(placed: list[tuple[TensorSpec, int, int]], data_bytes: int) -> None:
    """Check that the sorted tensors cover ``data_bytes`` bytes without holes or overlap."""
    covered = 0
    for spec, begin, end in placed:
        if begin != covered:
            fault = "leaves a hole before it" if begin > covered else "overlaps another tensor"
            raise FormatError(
                f"tensor {quoted(spec.name)}: begins at data byte {begin} instead of {covered} "
                f"and {fault}"
            )
        covered = end
    if covered > data_bytes:
        raise FormatError(f"{covered - data_bytes} bytes missing at the end", hint=_AGAIN)
    if covered < data_bytes:
        raise FormatError(f"{data_bytes - covered} bytes after the last tensor belong to none")
