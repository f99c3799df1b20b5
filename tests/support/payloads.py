"""Takes the payload of one tensor apart and seals it again with every checksum right."""

import struct
from dataclasses import dataclass, field

import numpy as np
import xxhash
from numpy.typing import NDArray

from unweight_codecs import payload
from unweight_codecs.entropy.directory import CODERS, entry
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.tensor_spec import TensorSpec


@dataclass
class Parts:
    """A payload taken apart: sections of the head, directory rows, and segments of each chunk."""

    sections: list[bytes]
    directory: NDArray[np.void]
    segments: list[list[bytes]]
    surplus: bytes = b""
    extra_rows: bytes = b""
    lengths: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, data: bytes, pipeline: Pipeline, spec: TensorSpec) -> "Parts":
        length = payload.peek_length(data[:64], len(data))
        head = payload.parse_head(data[:length])
        _, directory = pipeline.read_head(data[:length], spec, len(data))
        segments, at = [], length
        for row in directory:
            chunk = []
            for value in row["segments"].tolist():
                size = value & 0xFFFFF
                chunk.append(data[at : at + size])
                at += size + -size % 8
            segments.append(chunk)
        return cls(list(head.sections), directory.copy(), segments)

    def change(self, chunk: int, stream: int, coder: str | int, table: int, data: bytes) -> None:
        """Replace one segment and its directory entry."""
        number = CODERS.index(coder) if isinstance(coder, str) else coder
        self.segments[chunk][stream] = data
        self.directory["segments"][chunk, stream] = number << 28 | entry("raw", table, len(data))

    def drop_row(self) -> None:
        """Forget the last chunk's row, but not the chunk."""
        last = b"".join(segment + bytes(-len(segment) % 8) for segment in self.segments.pop())
        self.directory, self.surplus = self.directory[:-1], last

    def seal(self) -> bytes:
        """Put the payload together with every checksum right."""
        body = b""
        for i, chunk in enumerate(self.segments):
            padded = b"".join(segment + bytes(-len(segment) % 8) for segment in chunk)
            self.directory["checksum"][i] = xxhash.xxh3_64_intdigest(padded)
            body += padded
        rows = self.directory.tobytes() + self.extra_rows
        head = bytearray(payload.write_head(self.sections, rows))
        for section, length in self.lengths.items():
            struct.pack_into("<I", head, 16 + 4 * section, length)
        return resealed(bytes(head)) + body + self.surplus


def resealed(head: bytes) -> bytes:
    """Return a head with its checksum made right."""
    blank = head[:8] + bytes(8) + head[16:]
    return blank[:8] + struct.pack("<Q", xxhash.xxh3_64_intdigest(blank)) + blank[16:]


def frame_declaring(size: int) -> bytes:
    """Return a zstd frame that declares ``size`` bytes but holds almost none."""
    # Magic; descriptor: 8-byte content size, no checksum, no dictionary, single segment; size; one
    # empty last block.
    return struct.pack("<IBQ", 0xFD2FB528, 0xE0, size) + b"\x01\x00\x00"
