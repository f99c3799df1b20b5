"""The container header of an Unweight file, and the digest that protects it.

The digest comes first, so it lies at a fixed place. It is the XXH3-64 of the whole header with the
digest's own 16 digits taken as zeros.
"""

from collections.abc import Sequence
from typing import Final

import xxhash

from unweight.archive.host import HOSTS, Host, host_of
from unweight.containers.base import ContainerIndex
from unweight.containers.registry import container_named
from unweight.manifest import DIGEST_KEY, MANIFEST_KEY, MAX_SOURCE_HEADER, Manifest, parse_manifest
from unweight_codecs.errors import FormatError, IntegrityError, quoted

AGAIN: Final = "again would not make it smaller; `unweight inspect header` shows what it is"
_BLANK: Final = "0" * 16
_FREE_SOURCE_HEADER: Final = 1 << 16
_SOURCE_HEADER_RATIO: Final = 8


def write_header(manifest: Manifest, sizes: Sequence[int], length: int | None = None) -> bytes:
    """Return the header for tensors of ``sizes`` bytes each, in source file order.

    ``length`` pads it to a size reserved earlier.
    """
    host = host_of(manifest.source)
    texts = _BLANK, manifest.to_json(inline_header=host.inline_header), manifest.packed_header
    header = host.header(manifest.source, manifest.coded, sizes, texts, length)
    return _with_digest(header, host, _digest(header))


def largest_source_header(header: int) -> int:
    """Return the most bytes of JSON that a header of ``header`` bytes may unpack for its source.

    It repeats every name, so only odd source headers (much white space, names spelled as escapes)
    come near; the header of their Unweight file gets as many spaces as it takes.
    """
    return min(_FREE_SOURCE_HEADER + _SOURCE_HEADER_RATIO * header, MAX_SOURCE_HEADER)


def smallest_header(source: ContainerIndex) -> int:
    """Return the fewest bytes of a header that may hold that of ``source``."""
    if not host_of(source).inline_header:
        return 0
    surplus = len(source.header) - _FREE_SOURCE_HEADER
    return max(0, -(-surplus // (8 * _SOURCE_HEADER_RATIO)) * 8)


def check_not_archive(index: ContainerIndex, path: object, hint: str = AGAIN) -> None:
    """Refuse to compress what Unweight wrote; raises FormatError."""
    host = HOSTS.get(index.container)
    own = host.own_keys(index) if host else []
    if own:
        raise FormatError(
            f"{path}: already compressed by Unweight: it has the key {quoted(own[0])}",
            hint=hint,
        )


def read_manifest(index: ContainerIndex) -> Manifest:
    """Check a header's digest and parse its manifest.

    Raises FormatError for a file Unweight did not write or cannot read yet, IntegrityError for a
    damaged header. Everything the container says must agree with the manifest's source header.
    """
    if MANIFEST_KEY not in metadata_of(index):
        raise FormatError("not an Unweight file", hint="`unweight compress` makes one")
    host = HOSTS[index.container]
    at = host.lead_at + len(host.lead)
    blank = _with_digest(index.header, host, _BLANK)
    stored = index.header[at : at + len(_BLANK)]
    if index.header[host.lead_at : at] != host.lead or stored != _digest(blank).encode():
        raise IntegrityError(
            "the header is damaged or was rewritten by another program: wrong digest",
            hint="download or copy the file again",
        )
    limit = largest_source_header(len(index.header)) if host.inline_header else MAX_SOURCE_HEADER
    manifest = parse_manifest(*host.manifest(index), limit)
    _check_agreement(index, manifest, host)
    return manifest


def _check_agreement(index: ContainerIndex, manifest: Manifest, host: Host) -> None:
    if container_named(manifest.source.container).host != index.container:
        raise IntegrityError("the file is of another container than its source calls for")
    if host.inline_header:
        own = (DIGEST_KEY, MANIFEST_KEY)
        others = {key: text for key, text in metadata_of(index).items() if key not in own}
        if others != (manifest.source.metadata or {}):
            raise IntegrityError("the metadata differs from that of the source header")
    if len(index.tensors) != len(manifest.source.tensors):
        raise IntegrityError("the file has other tensors than its source header")
    for found, source in zip(index.tensors, manifest.source.tensors, strict=True):
        name = source.spec.name
        if found.spec.name != name:
            raise IntegrityError(f"tensor {quoted(name)} is not where the source header has it")
        if name in manifest.coded:
            if found.spec.dtype != host.coded_dtype or len(found.spec.shape) != 1:
                raise IntegrityError(f"coded tensor {quoted(name)} is not a list of bytes")
        elif (found.spec.dtype, found.spec.shape) != host.stored(source.spec):
            raise IntegrityError(f"stored tensor {quoted(name)} differs from the source header")


def metadata_of(index: ContainerIndex) -> dict[str, str]:
    """Return the metadata of a container, empty when it has none."""
    return index.metadata or {}


def _digest(header: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(header)


def _with_digest(header: bytes, host: Host, digest: str) -> bytes:
    at = host.lead_at + len(host.lead)
    return header[:at] + digest.encode() + header[at + len(digest) :]
