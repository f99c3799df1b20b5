"""Edits of Unweight files: each makes one thing wrong, and ``Archive.write`` the digests right."""

import base64
import struct
from collections.abc import Callable
from typing import Any

from tests.support.frames import frame_declaring
from tests.support.gguf_surgery import GgufArchive
from tests.support.surgery import Archive, Head

# Tensors of ``small_model``.
CODED, OTHER_CODED, STORED = "embed.weight", "proj.weight", "noise"

# Of either container, but for the edits of the source header.
Edit = Callable[[Any], None]


def manifest(*path: str | int, to: object) -> Edit:
    """Return an edit that sets one value of the manifest."""

    def edit(archive: Archive | GgufArchive) -> None:
        place: Any = archive.manifest
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return edit


def without(*path: str) -> Edit:
    """Return an edit that removes one value of the manifest."""

    def edit(archive: Archive | GgufArchive) -> None:
        place: Any = archive.manifest
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return edit


def source_header(change: Callable[[dict[str, Any]], None], size: int | None = None) -> Edit:
    """Return an edit of the source header that the manifest carries."""

    def edit(archive: Archive) -> None:
        document = dict(archive.source)
        change(document)
        archive.set_source(document, size)

    return edit


def source_header_frame(data: bytes, claimed: int) -> Edit:
    """Return an edit that puts any bytes in place of the compressed source header."""

    def edit(archive: Archive) -> None:
        source = archive.manifest["source"]
        source["header"] = base64.b64encode(data).decode()
        source["header_bytes"] = claimed
        source["size"] = max(source["size"], claimed)

    return edit


def shape(name: str, value: list[int], nbytes: int) -> Edit:
    """Return an edit that gives a tensor another shape, everywhere where that is said."""

    def edit(archive: Archive) -> None:
        document, at = dict(archive.source), 0
        for key, entry in document.items():
            if key == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            length = nbytes if key == name else end - begin
            changed = {"shape": value} if key == name else {}
            document[key] = {**entry, **changed, "data_offsets": [at, at + length]}
            at += length
        archive.set_source(document, at)
        archive.manifest["tensors"][name]["shape"] = value

    return edit


def head(change: Callable[[Head], None], lengths: list[int] | None = None) -> Edit:
    """Return an edit of the head of a coded tensor."""

    def edit(archive: Archive | GgufArchive) -> None:
        found, chunks = Head.read(archive.payloads[CODED])
        change(found)
        set_payload(archive, found.to_bytes(lengths) + chunks)

    return edit


def section(number: int, data: bytes) -> Edit:
    """Return an edit that replaces the section of one stage."""

    def change(found: Head) -> None:
        found.sections[number] = data

    return head(change)


def set_payload(archive: Archive | GgufArchive, payload: bytes) -> None:
    archive.payloads[CODED] = payload
    archive.tensors[CODED]["shape"] = [len(payload)]


def raw_payload(payload: bytes) -> Edit:
    """Return an edit that replaces the whole payload of a coded tensor."""
    return lambda archive: set_payload(archive, payload)


def swap_order(archive: Archive | GgufArchive) -> None:
    names = list(archive.tensors)
    names.remove(CODED)
    archive.tensors = {name: archive.tensors[name] for name in (*names, CODED)}


def exchange_payloads(archive: Archive | GgufArchive) -> None:
    one, two = archive.payloads[CODED], archive.payloads[OTHER_CODED]
    archive.payloads |= {CODED: two, OTHER_CODED: one}
    archive.tensors[CODED]["shape"], archive.tensors[OTHER_CODED]["shape"] = [len(two)], [len(one)]


def drop(name: str) -> Edit:
    """Return an edit that removes a tensor from the file, but not from the manifest."""

    def edit(archive: Archive | GgufArchive) -> None:
        del archive.tensors[name]

    return edit


def add_tensor(archive: Archive | GgufArchive) -> None:
    archive.tensors["surplus"] = {"dtype": archive.coded_dtype, "shape": [1]}
    archive.payloads["surplus"] = b"x"


def change_stored_shape(archive: Archive | GgufArchive) -> None:
    archive.tensors[STORED]["shape"] = [7, 100]


def code_as_other_dtype(archive: Archive | GgufArchive) -> None:
    archive.tensors[CODED] = {"dtype": "I16", "shape": [len(archive.payloads[CODED]) // 2]}


def pretend_coded(archive: Archive | GgufArchive) -> None:
    """Declare a stored tensor as coded, with its own bytes as the payload."""
    tensors = archive.manifest["tensors"]
    tensors[STORED] = {**tensors[CODED], **archive.tensors[STORED]}
    archive.manifest["stored"] = archive.manifest["stored"][16:]


def pipeline(*path: str | int, to: object) -> Edit:
    """Return an edit that sets one value of the only pipeline."""
    return manifest("pipelines", 0, *path, to=to)


def huge_scales(archive: Archive) -> None:
    """Claim 2**33 rows whose scales are one small zstd frame of zeros."""
    rows = 1 << 33
    shape(CODED, [rows, 16], rows * 32)(archive)
    frame = frame_declaring(rows)
    scales = struct.pack("<I", len(frame)) + frame
    section(2, b"\2\1\0" + scales + scales)(archive)


def one_column(archive: Archive) -> None:
    shape(CODED, [96 * 128, 1], 96 * 256)(archive)
