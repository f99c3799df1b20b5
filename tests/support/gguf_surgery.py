"""Takes GGUF files of Unweight apart and puts them together again with every digest made right.

The counterpart of ``surgery.Archive``, with the same parts under the same names.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import xxhash
import zstandard

from tests.support.gguf_files import aligned, array, file_of, key, tensor, text
from tests.support.surgery import compact
from unweight.containers.gguf.header import parse_header
from unweight.containers.gguf.values import ValueType

DIGEST_AT = 24 + 8 + len("unweight.digest") + 4 + 8
_BLANK = b"0" * 16
_TYPE_IDS = {"F32": 0, "Q4_1": 3, "I8": 24, "I16": 25, "BF16": 30}
_ALIGNMENT = 64  # of ``small_gguf``


@dataclass(slots=True)
class GgufArchive:
    """The parts of an Unweight file, to be changed at will.

    Attributes:
        manifest: The parsed manifest.
        source: The source header.
        packed: The bytes of the key that holds the source header, compressed and padded.
        tensors: dtype and shape of each tensor as in the file itself, in file order.
        payloads: Bytes of each tensor.
        offsets: Where each tensor begins in the file that was read.
        header_bytes: What precedes the first of them.
        keys: The encoded keys that are not Unweight's own, and the architecture's.
        source_key: What to write instead of the key with ``packed``, if anything.
    """

    coded_dtype: ClassVar[str] = "I8"

    manifest: dict[str, Any]
    source: bytes
    packed: bytes
    tensors: dict[str, dict[str, Any]]
    payloads: dict[str, bytes]
    offsets: dict[str, int]
    header_bytes: int
    keys: list[bytes]
    source_key: bytes | None = None

    @classmethod
    def read(cls, path: Path) -> "GgufArchive":
        data = path.read_bytes()
        parsed = parse_header(data)
        values = {each.name.decode(): data[each.type_start : each.end] for each in parsed.keys}
        manifest = json.loads(values["unweight.manifest"][12:])
        packed = values["unweight.source_header"][16:]
        frame = packed[: manifest["source"]["header_packed"]]
        names = {number: name for name, number in _TYPE_IDS.items()}
        tensors, payloads, offsets = {}, {}, {}
        for each in parsed.tensors:
            name, at = each.name.decode(), parsed.data_start + each.offset
            tensors[name] = {"dtype": names[each.type_id], "shape": list(each.ne[::-1])}
            size = {0: 4, 3: 20 / 32, 24: 1, 30: 2}[each.type_id]
            for extent in each.ne:
                size *= extent
            payloads[name], offsets[name] = data[at : at + int(size)], at
        keys = [
            data[each.start : each.end]
            for each in parsed.keys
            if not each.name.startswith(b"unweight.") or each.name == b"unweight.architecture"
        ]
        source = zstandard.decompress(frame)
        return cls(manifest, source, packed, tensors, payloads, offsets, parsed.data_start, keys)

    def set_source(self, header: bytes, size: int | None = None) -> None:
        """Replace the source header, and the bytes that the source claims to have after it."""
        frame = zstandard.compress(header)
        source = self.manifest["source"]
        if size is None:
            size = source["size"] - source["header_bytes"]
        source |= {"header_bytes": len(header), "header_packed": len(frame)}
        source["size"] = len(header) + size
        self.packed = frame + bytes(-len(frame) % 8)
        self.source = header

    def write(self, path: Path, metadata: object = None) -> Path:
        """Write the file with offsets and the header's digest as they must be."""
        table, data = [], b""
        for name, entry in self.tensors.items():
            data += bytes(-len(data) % _ALIGNMENT)
            ne = entry["shape"][::-1]
            table.append(tensor(name.encode(), ne, len(data), _TYPE_IDS[entry["dtype"]]))
            data += self.payloads[name]
        words = array(ValueType.UINT64, len(self.packed) // 8, self.packed)
        keys = [
            text(b"unweight.digest", _BLANK),
            text(b"unweight.manifest", compact(self.manifest).encode()),
            key(b"unweight.source_header", ValueType.ARRAY, words)
            if self.source_key is None
            else self.source_key,
            *self.keys,
        ]
        assert aligned(_ALIGNMENT) in keys
        file = bytearray(file_of([each for each in keys if each], table, data, _ALIGNMENT))
        header = bytes(file[: len(file) - len(data)])
        file[DIGEST_AT : DIGEST_AT + 16] = xxhash.xxh3_64_hexdigest(header).encode()
        path.write_bytes(file)
        return path
