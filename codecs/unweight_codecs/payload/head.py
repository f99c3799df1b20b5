"""The head of a coded tensor: one section per stage, then the chunk directory.

0   "UWT1"
4   u32 length of the head, a multiple of 16
8   u64 XXH3-64 of the head with this field as zero
16  u32 length of each of the five sections
36  u32 zero
40  sections, zero padding to 8, directory rows, zero padding to 16
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from unweight_codecs.errors import IntegrityError

MAGIC = b"UWT1"
ALIGNMENT = 16
_FIXED = struct.Struct("<4sIQ5II")
_CHECKSUM = struct.Struct("<Q")
_CHECKSUM_AT = 8


@dataclass(frozen=True, slots=True)
class Head:
    """A parsed head: the stages' sections and the bytes of the directory with its padding."""

    sections: tuple[bytes, ...]
    directory: memoryview
    length: int


def head_length(sections: Sequence[bytes], directory_bytes: int) -> int:
    """Return the bytes of a head."""
    before = -(-(_FIXED.size + sum(map(len, sections))) // 8) * 8
    return -(-(before + directory_bytes) // ALIGNMENT) * ALIGNMENT


def write_head(sections: Sequence[bytes], directory: bytes) -> bytes:
    """Return the head of a payload."""
    length = head_length(sections, len(directory))
    head = bytearray(_FIXED.pack(MAGIC, length, 0, *map(len, sections), 0))
    head += b"".join(sections)
    head += bytes(-len(head) % 8) + directory
    head += bytes(length - len(head))
    _CHECKSUM.pack_into(head, _CHECKSUM_AT, xxhash.xxh3_64_intdigest(bytes(head)))
    return bytes(head)


def peek_length(start: bytes, limit: int) -> int:
    """Return the length of the head that begins with ``start``; at most ``limit`` is believed."""
    if len(start) < _FIXED.size or start[:4] != MAGIC:
        raise IntegrityError("a coded tensor does not begin with an Unweight head")
    length = int(_FIXED.unpack_from(start)[1])
    if length < _FIXED.size or length % ALIGNMENT or length > limit:
        raise IntegrityError("the head of a coded tensor has an impossible length")
    return length


def parse_head(head: bytes) -> Head:
    """Check a head's checksum and structure, and return its parts."""
    length = peek_length(head, len(head))
    _, _, checksum, *lengths, zero = _FIXED.unpack_from(head)
    view = memoryview(head)[:length]  # heads of large tensors are not worth a copy
    digest = xxhash.xxh3_64(view[:_CHECKSUM_AT])
    digest.update(bytes(_CHECKSUM.size))
    digest.update(view[_CHECKSUM_AT + _CHECKSUM.size :])
    if digest.intdigest() != checksum or zero:
        raise IntegrityError("the head of a coded tensor is damaged: wrong checksum")
    at, sections = _FIXED.size, []
    for size in lengths:
        sections.append(head[at : at + size])
        at += size
    end, at = at, at + -at % 8
    if at > length:
        raise IntegrityError("the sections of a coded tensor are longer than its head")
    if any(view[end:at]):
        raise IntegrityError("the padding after the sections of a coded tensor is not zero")
    return Head(tuple(sections), view[at:], length)
