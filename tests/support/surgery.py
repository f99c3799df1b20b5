"""Takes Unweight files apart and puts them together again with every digest made right.

Written from the description of the format, not with the library: a file that is wrong in one thing
only must be refused for that thing, not because of a digest.
"""

import base64
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import xxhash
import zstandard

_DIGEST = "unweight.digest"
_MANIFEST = "unweight.manifest"
_BLANK = "0" * 16
_HEAD = struct.Struct("<4sIQ5II")


@dataclass(slots=True)
class Archive:
    """The parts of an Unweight file, to be changed at will.

    Attributes:
        manifest: The parsed manifest, without its source header.
        source: The parsed JSON of the source header.
        tensors: Header entries of the file itself, in file order, offsets left out.
        payloads: Bytes of each tensor.
        offsets: Where each tensor begins in the file that was read.
        header_bytes: What precedes the first of them.
    """

    coded_dtype: ClassVar[str] = "U8"

    manifest: dict[str, Any]
    source: dict[str, Any]
    tensors: dict[str, dict[str, Any]]
    payloads: dict[str, bytes]
    offsets: dict[str, int]
    header_bytes: int

    @classmethod
    def read(cls, path: Path) -> "Archive":
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        document = json.loads(data[8:start])
        manifest = json.loads(document.pop("__metadata__")[_MANIFEST])
        header = zstandard.ZstdDecompressor().decompress(
            base64.b64decode(manifest["source"]["header"])
        )
        payloads, offsets = {}, {}
        for name, entry in document.items():
            begin, end = entry.pop("data_offsets")
            payloads[name] = data[start + begin : start + end]
            offsets[name] = start + begin
        return cls(manifest, json.loads(header[8:]), document, payloads, offsets, start)

    def set_source(self, document: dict[str, Any], size: int | None = None) -> None:
        """Replace the source header, and the bytes of tensors that the source claims to have."""
        header = framed(document)
        source = self.manifest["source"]
        if size is None:
            size = source["size"] - source["header_bytes"]
        source["header"] = base64.b64encode(zstandard.compress(header)).decode()
        source["header_bytes"] = len(header)
        source["size"] = len(header) + size
        self.source = document

    def write(self, path: Path, metadata: dict[str, str] | None = None) -> Path:
        """Write the file with offsets and the header's digest as they must be."""
        kept = metadata if metadata is not None else self.source.get("__metadata__", {})
        document: dict[str, Any] = {
            "__metadata__": {_DIGEST: _BLANK, _MANIFEST: compact(self.manifest), **kept}
        }
        at = 0
        for name, entry in self.tensors.items():
            end = at + len(self.payloads[name])
            document[name] = {**entry, "data_offsets": [at, end]}
            at = end
        header = framed(document)
        digest = xxhash.xxh3_64_hexdigest(header).encode()
        header = header.replace(_BLANK.encode(), digest, 1)
        path.write_bytes(header + b"".join(self.payloads[name] for name in self.tensors))
        return path


@dataclass(slots=True)
class Head:
    """The head of a coded tensor: sections of the five stages, then the chunk directory."""

    sections: list[bytes]
    directory: bytes

    @classmethod
    def read(cls, payload: bytes) -> tuple["Head", bytes]:
        """Return the head of a payload and the chunks after it."""
        _, length, _, *lengths, _ = _HEAD.unpack_from(payload)
        at, sections = _HEAD.size, []
        for size in lengths:
            sections.append(payload[at : at + size])
            at += size
        return cls(sections, payload[-(-at // 8) * 8 : length]), payload[length:]

    def to_bytes(self, lengths: list[int] | None = None) -> bytes:
        """Return the head with a right checksum; ``lengths`` lies about the sections."""
        claimed = lengths or [len(section) for section in self.sections]
        body = b"".join(self.sections)
        body += bytes(-(_HEAD.size + len(body)) % 8) + self.directory
        body += bytes(-(_HEAD.size + len(body)) % 16)
        blank = _HEAD.pack(b"UWT1", _HEAD.size + len(body), 0, *claimed, 0) + body
        checksum = xxhash.xxh3_64_intdigest(blank)
        return blank[:8] + struct.pack("<Q", checksum) + blank[16:]


def compact(document: object) -> str:
    """Return canonical JSON: sorted keys, no spaces."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def framed(document: dict[str, Any]) -> bytes:
    """Return a safetensors header: length, JSON, padding to a multiple of 8."""
    text = json.dumps(document, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
