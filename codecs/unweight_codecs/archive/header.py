"""The container header of an Unweight file, and the digest that protects it.

The digest comes first in the metadata, so it lies at a fixed place. It is the XXH3-64 of the whole
header with the digest's own 16 digits taken as zeros.
"""

from collections.abc import Sequence
from typing import Final

import xxhash

from unweight_codecs.containers import safetensors
from unweight_codecs.containers.base import ContainerIndex
from unweight_codecs.errors import FormatError, IntegrityError, quoted
from unweight_codecs.manifest import DIGEST_KEY, MANIFEST_KEY, Manifest, parse_manifest

_BLANK: Final = b"0" * 16
_LEAD: Final = b'{"__metadata__":{"' + DIGEST_KEY.encode() + b'":"'
_DIGEST_AT: Final = 8 + len(_LEAD)

CODED_DTYPE: Final = "U8"


def write_header(manifest: Manifest, sizes: Sequence[int], length: int | None = None) -> bytes:
    """Return the header for tensors of ``sizes`` bytes each, in source file order.

    ``length`` pads it to a size reserved earlier.
    """
    metadata = {DIGEST_KEY: _BLANK.decode(), MANIFEST_KEY: manifest.to_json()}
    metadata |= manifest.source.metadata or {}
    entries: list[tuple[str, str, tuple[int, ...], int]] = []
    for entry, size in zip(manifest.source.tensors, sizes, strict=True):
        spec = entry.spec
        if spec.name in manifest.coded:
            entries.append((spec.name, CODED_DTYPE, (size,), size))
        else:
            entries.append((spec.name, spec.dtype, spec.shape, size))
    header = safetensors.header_bytes(entries, metadata, length=length)
    return _with_digest(header, _digest(header).encode())


def check_not_archive(index: ContainerIndex, path: object) -> None:
    """Refuse to compress what Unweight wrote; raises FormatError."""
    for key in (MANIFEST_KEY, DIGEST_KEY):
        if key in (index.metadata or {}):
            raise FormatError(
                f"{path}: already compressed by Unweight",
                hint="again would not make it smaller; `unweight inspect header` shows what it is",
            )


def read_manifest(index: ContainerIndex) -> Manifest:
    """Check a header's digest and parse its manifest.

    Raises FormatError for a file Unweight did not write or cannot read yet, IntegrityError for a
    damaged header. Everything the container says must agree with the manifest's source header.
    """
    metadata = index.metadata or {}
    if MANIFEST_KEY not in metadata:
        raise FormatError("not an Unweight file", hint="`unweight compress` makes one")
    start, stored = index.header[8:_DIGEST_AT], index.header[_DIGEST_AT : _DIGEST_AT + 16]
    if start != _LEAD or stored != _digest(_with_digest(index.header, _BLANK)).encode():
        raise IntegrityError(
            "the header is damaged or was rewritten by another program: wrong digest",
            hint="download or copy the file again",
        )
    manifest = parse_manifest(metadata[MANIFEST_KEY])
    _check_agreement(index, manifest)
    return manifest


def _check_agreement(index: ContainerIndex, manifest: Manifest) -> None:
    others = {k: v for k, v in metadata_of(index).items() if k not in (DIGEST_KEY, MANIFEST_KEY)}
    if others != (manifest.source.metadata or {}):
        raise IntegrityError("the metadata differs from that of the source header")
    if len(index.tensors) != len(manifest.source.tensors):
        raise IntegrityError("the file has other tensors than its source header")
    for found, source in zip(index.tensors, manifest.source.tensors, strict=True):
        name = source.spec.name
        if found.spec.name != name:
            raise IntegrityError(f"tensor {quoted(name)} is not where the source header has it")
        if name in manifest.coded:
            if found.spec.dtype != CODED_DTYPE or len(found.spec.shape) != 1:
                raise IntegrityError(f"coded tensor {quoted(name)} is not a list of bytes")
        elif found.spec != source.spec:
            raise IntegrityError(f"stored tensor {quoted(name)} differs from the source header")


def metadata_of(index: ContainerIndex) -> dict[str, str]:
    """Return the metadata of a container, empty when it has none."""
    return index.metadata or {}


def _digest(header: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(header)


def _with_digest(header: bytes, digest: bytes) -> bytes:
    return header[:_DIGEST_AT] + digest + header[_DIGEST_AT + 16 :]
