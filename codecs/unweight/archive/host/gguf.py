"""Unweight files in GGUF, for sources in GGUF."""

import struct
from collections.abc import Collection, Sequence
from typing import Final

from unweight.containers.base import ContainerIndex
from unweight.containers.gguf import writer as gguf_writer
from unweight.containers.gguf.ggml_types import type_id_of
from unweight.containers.gguf.header import parse_header, text_of
from unweight.containers.gguf.values import KeyValue, ValueType
from unweight.manifest import DIGEST_KEY, MANIFEST_KEY
from unweight_codecs.errors import IntegrityError
from unweight_codecs.tensor_spec import TensorSpec

SOURCE_HEADER_KEY: Final = "unweight.source_header"
_WORD: Final = 8


class GgufHost:
    """Digest and manifest are string keys, the source header is an array; a coded tensor is I8.

    The source is a GGUF file: the keys that stay visible are its own.
    """

    coded_dtype = "I8"
    inline_header = False
    lead_at = 24  # after magic, version and the two counts
    lead = gguf_writer.encode_string_key(DIGEST_KEY, "0" * 16)[:-16]

    def own_keys(self, index: ContainerIndex) -> list[str]:
        """Return the keys, of any type, with the prefix of ours."""
        names = (key.name for key in parse_header(index.header).keys)
        return [text_of(name) for name in names if name.startswith(gguf_writer.RESERVED_PREFIX)]

    def stored(self, spec: TensorSpec) -> tuple[str, tuple[int, ...]]:
        """Return the tensor's own dtype and shape, as the source is a GGUF file, too."""
        return spec.dtype, spec.shape

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
