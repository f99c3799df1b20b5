"""What an Unweight file looks like in each container: one format per container, in a table."""

import struct
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from unweight.containers import safetensors
from unweight.containers.base import ContainerIndex
from unweight.containers.gguf import writer as gguf_writer
from unweight.containers.gguf.ggml_types import type_id_of
from unweight.containers.gguf.header import parse_header, text_of
from unweight.containers.gguf.values import KeyValue, ValueType
from unweight.manifest import DIGEST_KEY, MANIFEST_KEY
from unweight_codecs.errors import IntegrityError

SOURCE_HEADER_KEY: Final = "unweight.source_header"
_WORD: Final = 8


class ArchiveFormat(Protocol):
    """How a container holds digest, manifest, source header and coded tensors.

    Attributes:
        coded_dtype: dtype of a coded tensor, a list of bytes.
        inline_header: Whether the manifest itself holds the source's header.
        lead: The bytes of a header from ``lead_at`` up to the 16 digits of its digest.
    """

    coded_dtype: str
    inline_header: bool
    lead_at: int
    lead: bytes

    def own_keys(self, index: ContainerIndex) -> list[str]:
        """Return the keys of a file that only Unweight writes."""
        ...

    def alignment(self, source: ContainerIndex) -> int:
        """Return where tensors may begin, counted from the end of the header."""
        ...

    def header(
        self,
        source: ContainerIndex,
        coded: Collection[str],
        sizes: Sequence[int],
        texts: tuple[str, str, bytes],
        length: int | None,
    ) -> bytes:
        """Return the header; ``texts`` are digest, manifest and the compressed source header."""
        ...

    def manifest(self, index: ContainerIndex) -> tuple[str, bytes]:
        """Return the manifest and the compressed source header of an Unweight file."""
        ...


class SafetensorsFormat:
    """Digest and manifest are string metadata; a coded tensor is U8."""

    coded_dtype = "U8"
    inline_header = True
    lead_at = 8
    lead = b'{"__metadata__":{"' + DIGEST_KEY.encode() + b'":"'

    def own_keys(self, index: ContainerIndex) -> list[str]:
        """Return those of digest and manifest that the metadata have."""
        return [key for key in (MANIFEST_KEY, DIGEST_KEY) if key in (index.metadata or {})]

    def alignment(self, source: ContainerIndex) -> int:
        """Return 1: tensors follow each other."""
        return 1

    def header(
        self,
        source: ContainerIndex,
        coded: Collection[str],
        sizes: Sequence[int],
        texts: tuple[str, str, bytes],
        length: int | None,
    ) -> bytes:
        """Return the header with the source's own metadata after ours."""
        digest, manifest, _ = texts
        metadata = {DIGEST_KEY: digest, MANIFEST_KEY: manifest} | (source.metadata or {})
        entries = [
            (entry.spec.name, self.coded_dtype, (size,), size)
            if entry.spec.name in coded
            else (entry.spec.name, entry.spec.dtype, entry.spec.shape, size)
            for entry, size in zip(source.tensors, sizes, strict=True)
        ]
        return safetensors.header_bytes(entries, metadata, length=length)

    def manifest(self, index: ContainerIndex) -> tuple[str, bytes]:
        """Return the manifest, which holds the source header itself."""
        return (index.metadata or {})[MANIFEST_KEY], b""


class GgufFormat:
    """Digest and manifest are string keys, the source header is an array; a coded tensor is I8."""

    coded_dtype = "I8"
    inline_header = False
    lead_at = 24  # after magic, version and the two counts
    lead = gguf_writer.encode_string_key(DIGEST_KEY, "0" * 16)[:-16]

    def own_keys(self, index: ContainerIndex) -> list[str]:
        """Return the keys, of any type, with the prefix of ours."""
        names = (key.name for key in parse_header(index.header).keys)
        return [text_of(name) for name in names if name.startswith(gguf_writer.RESERVED_PREFIX)]

    def alignment(self, source: ContainerIndex) -> int:
        """Return the alignment the source asks for."""
        return parse_header(source.header).alignment

    def header(
        self,
        source: ContainerIndex,
        coded: Collection[str],
        sizes: Sequence[int],
        texts: tuple[str, str, bytes],
        length: int | None,
    ) -> bytes:
        """Return the header with all keys of the source, long arrays shortened."""
        digest, manifest, blob = texts
        parsed = parse_header(source.header)
        keys = [
            gguf_writer.encode_string_key(DIGEST_KEY, digest),
            gguf_writer.encode_string_key(MANIFEST_KEY, manifest),
            _encode_bytes(SOURCE_HEADER_KEY, blob),
            *gguf_writer.visible_keys(source.header, parsed),
        ]
        names = {text_of(tensor.name): tensor.name for tensor in parsed.tensors}
        tensors = [
            (names[entry.spec.name], type_id_of(self.coded_dtype), (size,))
            if entry.spec.name in coded
            else (names[entry.spec.name], type_id_of(entry.spec.dtype), entry.spec.shape[::-1])
            for entry, size in zip(source.tensors, sizes, strict=True)
        ]
        return gguf_writer.header_bytes(keys, tensors, parsed.alignment, length=length)

    def manifest(self, index: ContainerIndex) -> tuple[str, bytes]:
        """Return manifest and source header from the keys of the file."""
        keys = {text_of(key.name): key for key in parse_header(index.header).keys}
        if SOURCE_HEADER_KEY not in keys:
            raise IntegrityError("the file has lost the header of its source")
        text = keys[MANIFEST_KEY]
        manifest = text_of(index.header[text.string_start : text.end])
        return manifest, _decode_bytes(index.header, keys[SOURCE_HEADER_KEY])


def _encode_bytes(name: str, data: bytes) -> bytes:
    """Return a key whose value is an array of 64-bit words: fewer elements to list than bytes."""
    words = -(-len(data) // _WORD)
    key = gguf_writer.encode_string_key(name, "")[: -_WORD - 4]
    kinds = struct.pack("<IIQ", ValueType.ARRAY, ValueType.UINT64, words)
    return key + kinds + data.ljust(words * _WORD, b"\0")


def _decode_bytes(header: bytes, key: KeyValue) -> bytes:
    if key.value_type is not ValueType.ARRAY or key.array_type is not ValueType.UINT64:
        raise IntegrityError("the header of the source is no array of 64-bit words")
    return header[key.end - _WORD * key.array_count : key.end]


FORMATS: Final[dict[str, ArchiveFormat]] = {
    "safetensors": SafetensorsFormat(),
    "gguf": GgufFormat(),
}
