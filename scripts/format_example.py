"""Writes the worked example of specs/FORMAT.md anew: a tiny file, compressed and taken apart.

usage: python scripts/format_example.py
"""

import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zstandard

from unweight.archive import ArchiveReader
from unweight.manifest import MANIFEST_KEY
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.progress import NoProgress
from unweight_codecs.accelerators import PayloadHead
from unweight_codecs.codec import SLOTS_IN_ORDER
from unweight_codecs.entropy.frequencies import serialised_sizes
from unweight_codecs.kernels.operands import ALPHABET, LANES
from unweight_codecs.model import BUILT_IN_CODERS, TensorModel
from unweight_codecs.payload.directory import LENGTH_BITS, TABLE_BITS

SPECIFICATION = Path(__file__).resolve().parent.parent / "codecs/unweight_codecs/specs/FORMAT.md"
NO_TABLES = np.zeros((0, ALPHABET), np.uint16)
BEGIN, END = "<!-- example:begin -->\n", "<!-- example:end -->\n"

Part = tuple[int, str]  # bytes, and what they are


def source_file() -> bytes:
    """Return a safetensors file of two tensors, one of them worth coding."""
    weights = [0x3F80 if i % 16 == 0 else 0x3F00 for i in range(2048)]
    weights[100] = 0
    data = struct.pack("<2f", 1.0, -1.0) + struct.pack("<2048H", *weights)
    header = json.dumps(
        {
            "bias": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "weight": {"dtype": "BF16", "shape": [32, 64], "data_offsets": [8, len(data)]},
        }
    ).encode()
    return struct.pack("<Q", len(header)) + header + data


def example() -> str:
    """Compress the file in a temporary folder; return the text between the markers."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "example.safetensors"), Path(folder, "out.safetensors")
        source.write_bytes(source_file())
        compress(source, target, CompressOptions(), NoProgress())
        with ArchiveReader(target) as archive:
            return "".join(_text(archive, source.read_bytes(), target.read_bytes()))


def _text(archive: ArchiveReader, source: bytes, coded: bytes) -> Iterator[str]:
    header, metadata = archive.index.header, archive.index.metadata or {}
    json_text = header[8:].decode().rstrip()
    manifest = metadata[MANIFEST_KEY]
    outer = json_text.replace(json.dumps(manifest), '"…"')
    start, spaces = len(archive.manifest.source.header), len(header) - 8 - len(json_text)
    zstd = ".".join(map(str, zstandard.ZSTD_VERSION))
    yield f"Written by {archive.manifest.generator} with zstd {zstd}.\n\n"
    yield f"The source has {len(source)} bytes. Those before the tensors:\n\n```text\n"
    yield from _dump(source, 0, [(8, f"bytes of the header: {start - 8}"), (start - 8, "header")])
    yield f"```\n\nThe Unweight file has {len(coded)} bytes. Its header has {len(header)}: "
    yield f"a length of {len(header) - 8},\n{len(json_text)} bytes of JSON and {spaces} spaces. "
    yield "The JSON, with … for the manifest (lines are broken here only):\n\n"
    yield f"```json\n{_wrapped(outer)}\n```\n\n"
    yield "The manifest, without the escapes of a string in JSON:\n\n"
    yield f"```json\n{_wrapped(manifest)}\n```\n\nAll bytes after the header:\n\n```text\n"
    parts: list[Part] = []
    for original, here in archive.tensors():
        name = original.spec.name
        if archive.is_coded(name):
            parts += _payload_parts(archive.head(original, here), name)
        else:
            parts.append((here.nbytes, f"tensor {name}, stored"))
    yield from _dump(coded, len(header), parts)
    yield "```\n"


def _wrapped(text: str, width: int = 110) -> str:
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))


def _payload_parts(head: PayloadHead, name: str) -> Iterator[Part]:
    model = head.model
    sections = [len(stage.write(model)) for stage in head.pipeline.stages]
    yield 4, f'tensor {name}, coded: "UWT1"'
    yield 4, f"bytes of the head: {head.head_bytes}"
    yield 8, "XXH3-64 of the head"
    yield 20, "bytes of the five sections: " + ", ".join(map(str, sections))
    yield 4, "zero"
    labels = {
        "outlier": [(2, f"outlier: base {model.base}"), (1, f"window {model.window}"), (1, "zero")],
        "grid": list(_grid_parts(model)),
        "tile_svd": [(1, "tile_svd: off")],
        "pack": [(4, f"pack: chunks of {model.chunk_words} words")],
    }
    used = 40
    for slot, size in zip(SLOTS_IN_ORDER, sections, strict=True):
        used += size
        if size:
            yield from labels[slot]
    yield -used % 8, "padding to 8"
    used += -used % 8
    yield from _directory_and_chunk(head, used)


def _grid_parts(model: TensorModel) -> Iterator[Part]:
    yield 1, f"grid: m = {model.top_bits}"
    for stream in model.streams():
        if stream == "escape":
            continue
        tables = model.tables.get(stream, NO_TABLES)
        yield 1, f"tables of {stream}: {len(tables)}"
        for size in serialised_sizes(tables).tolist():
            yield size, f"{stream}: first value, last value, frequencies"


def _directory_and_chunk(head: PayloadHead, used: int) -> Iterator[Part]:
    streams = list(head.model.streams())
    entries = [int(value) for value in head.directory["segments"][0]]
    yield 8, "directory, chunk 0: XXH3-64 of the chunk"
    described = []
    for stream, value in zip(streams, entries, strict=True):
        length = value & (1 << LENGTH_BITS) - 1
        table = value >> LENGTH_BITS & (1 << TABLE_BITS) - 1
        coder = BUILT_IN_CODERS[value >> LENGTH_BITS + TABLE_BITS]
        described.append((stream, coder, length))
        yield 4, f"{stream}: coder {coder}, table {table}, bytes {length}"
    yield head.head_bytes - used - 8 - 4 * len(streams), "padding to 16"
    for stream, coder, length in described:
        if coder == "rans":
            yield 4 * LANES, f"{stream}: states of lanes 0 to 31"
            yield length - 4 * LANES, f"{stream}: refill words"
        else:
            yield length, f"{stream}: {coder}"
        yield -length % 8, "padding to 8"


def _dump(data: bytes, at: int, parts: list[Part]) -> Iterator[str]:
    """Yield lines of at most 16 bytes, each part beginning a line of its own."""
    for length, label in parts:
        for offset in range(at, at + length, 16):
            piece = data[offset : min(offset + 16, at + length)]
            note = f"  {label}" if offset == at else ""
            yield f"{offset:06x}  {piece.hex(' '):47}{note}".rstrip() + "\n"
        at += length


def with_example(document: str) -> str:
    """Return the specification with a fresh example between its markers."""
    before, rest = document.split(BEGIN)
    return before + BEGIN + example() + END + rest.split(END)[1]


if __name__ == "__main__":
    SPECIFICATION.write_text(
        with_example(SPECIFICATION.read_text(encoding="utf-8")), encoding="utf-8"
    )
