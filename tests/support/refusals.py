"""Ways in which an Unweight file can lie, and what must be said about each.

Digests are right in all of them: what they say is not. ``REFUSALS`` has them by container.
"""

import struct

import zstandard

from tests.support import gguf_files
from tests.support.edits import (
    CODED,
    STORED,
    Edit,
    add_tensor,
    change_stored_shape,
    code_as_other_dtype,
    drop,
    exchange_payloads,
    head,
    huge_scales,
    manifest,
    one_column,
    pipeline,
    pretend_coded,
    raw_payload,
    section,
    shape,
    source_header,
    source_header_frame,
    swap_order,
    without,
)
from tests.support.frames import TERABYTE, frame_declaring
from tests.support.gguf_surgery import GgufArchive
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError

Refusal = tuple[Edit, str]  # what is wrong, and a pattern of the message

# --- of every container ---------------------------------------------------------------------

FUTURE: dict[str, Refusal] = {
    "a newer major version": (manifest("format", to=[2, 3]), r"version 2\.3.*up to 1\.x.*upgrade"),
    "a far newer version": (manifest("format", to=[10**12, 0]), "upgrade"),
    "an unknown feature": (manifest("features", to=["tiled"]), "'tiled'.*upgrade"),
    "the mode error-bounded": (manifest("mode", to="error-bounded"), "'error-bounded'.*upgrade"),
    "an unknown codec": (
        pipeline("stages", 1, "name", to="acme.grid"),
        "codec 'acme.grid'.*install",
    ),
    "a codec name of a megabyte": (pipeline("stages", 1, "name", to="x" * 10**6), "^.{,600}$"),
}

VERSIONS: dict[str, Refusal] = {
    "a version before the first": (manifest("format", to=[0, 9]), "impossible format version"),
    "a negative minor version": (manifest("format", to=[1, -1]), "impossible format version"),
    "a version of one number": (manifest("format", to=[1]), "no format version"),
    "a version that is text": (manifest("format", to="1.0"), "no format version"),
    "no version": (without("format"), "no format version"),
    "features that are a number": (manifest("features", to=1), "features"),
    "features that are null": (manifest("features", to=None), "features"),
    "features that are text": (manifest("features", to="ab"), "features"),
    "no features": (without("features"), "features"),
    "no epsilon": (without("epsilon"), "epsilon"),
    "an epsilon that is false": (manifest("epsilon", to=False), "epsilon"),
    "an epsilon in the lossless mode": (manifest("epsilon", to=0.01), "mode and epsilon"),
    "the bounded mode without an epsilon": (manifest("mode", to="bounded"), "mode and epsilon"),
}

TENSORS: dict[str, Refusal] = {
    "a pipeline out of range": (
        manifest("tensors", CODED, "pipeline", to=1),
        "pipeline that is not there",
    ),
    "a negative pipeline": (
        manifest("tensors", CODED, "pipeline", to=-1),
        "pipeline that is not there",
    ),
    "a pipeline that is true": (
        manifest("tensors", CODED, "pipeline", to=True),
        "pipeline that is not there",
    ),
    "another dtype": (manifest("tensors", CODED, "dtype", to="F16"), "another dtype or shape"),
    "another shape": (manifest("tensors", CODED, "shape", to=[128, 96]), "another dtype or shape"),
    "a negative shape": (
        manifest("tensors", CODED, "shape", to=[-96, -128]),
        "another dtype or shape",
    ),
    "another digest": (manifest("tensors", CODED, "digest", to="0" * 16), "wrong digest"),
    "a digest too short": (manifest("tensors", CODED, "digest", to="0"), "not a digest"),
    "a tensor that is not there": (
        manifest("tensors", "absent", to={"pipeline": 0}),
        "absent|dtype",
    ),
    "a coded tensor that is not listed": (without("tensors", CODED), "digests"),
    "tensors that are a list": (manifest("tensors", to=[]), "damaged"),
    "tensors that are null": (manifest("tensors", to=None), "damaged"),
    "a tensor that is null": (manifest("tensors", CODED, to=None), "damaged"),
    "no tensors": (without("tensors"), "'tensors'"),
    "a digest of stored tensors too few": (manifest("stored", to="0" * 32), "digests"),
    "digests that are a number": (manifest("stored", to=0), "damaged"),
    "other digests of stored tensors": (manifest("stored", to="0" * 48), "'noise': wrong digest"),
    "tensors in another order": (swap_order, "not where the source header has it"),
    "payloads exchanged": (exchange_payloads, "tensor 'embed.weight'"),
    "a tensor missing": (drop(STORED), "other tensors"),
    "a tensor too many": (add_tensor, "other tensors"),
    "a stored tensor of another shape": (change_stored_shape, "'noise' differs"),
    "a coded tensor of another dtype": (code_as_other_dtype, "not a list of bytes"),
    "a stored tensor declared as coded": (pretend_coded, "not a list of bytes|not begin"),
}

PIPELINES: dict[str, Refusal] = {
    "a codec name that is a list": (pipeline("stages", 1, "name", to=[]), "pipeline"),
    "an unknown setting": (pipeline("stages", 1, "configuration", to={"depth": 1}), "depth"),
    "a setting out of range": (
        pipeline("stages", 4, "configuration", to={"chunk_log2": 60}),
        "chunk_log2",
    ),
    "a setting that is text": (
        pipeline("stages", 4, "configuration", to={"chunk_log2": "17"}),
        "chunk_log2",
    ),
    "a configuration that is a list": (pipeline("stages", 4, "configuration", to=[1]), "pipeline"),
    "a configuration that is null": (pipeline("stages", 4, "configuration", to=None), "pipeline"),
    "stages in another order": (pipeline("stages", 0, "name", to="histogram_grid"), "pipeline"),
    "no stages": (pipeline("stages", to=[]), "pipeline"),
    "stages that are a number": (pipeline("stages", to=5), "pipeline"),
    "a pipeline without a name": (pipeline("name", to=""), "impossible name ''"),
    "a pipeline called stored": (pipeline("name", to="stored"), "impossible name 'stored'"),
    "a pipeline whose name is a number": (pipeline("name", to=7), "impossible name"),
    "5,000 pipelines": (
        manifest("pipelines", to=[{"name": "p", "stages": []}] * 5_000),
        "too many for",
    ),
    "pipelines that are a number": (manifest("pipelines", to=5), "damaged"),
    "pipelines of numbers": (manifest("pipelines", to=[5]), "damaged"),
    "no pipelines": (manifest("pipelines", to=[]), "pipeline that is not there"),
}

SOURCES: dict[str, Refusal] = {
    "a negative size": (manifest("source", "size", to=-1), "-1 is not a size"),
    "a size that is a fraction": (manifest("source", "size", to=1.5), "not a size"),
    "an unknown container": (manifest("source", "container", to="tar"), "'tar'"),
    "a container that is a list": (manifest("source", "container", to=[]), "damaged"),
    "a digest of another kind": (manifest("source", "sha256", to="0" * 63), "not a digest"),
    "another SHA-256": (manifest("source", "sha256", to="0" * 64), "SHA-256"),
    "a source that is a list": (manifest("source", to=[]), "damaged"),
    "no source": (without("source"), "'source'"),
    "a header that is no base64": (manifest("source", "header", to="***"), "damaged"),
    "a header that is no text": (manifest("source", "header", to=7), "damaged"),
}

HEADS: dict[str, Refusal] = {
    "an empty payload": (raw_payload(b""), "not begin with an Unweight head"),
    "a payload of zeros": (raw_payload(bytes(1000)), "not begin with an Unweight head"),
    "a head of 4 GB": (
        raw_payload(struct.pack("<4sI", b"UWT1", 0xFFFFFFF0) + bytes(1000)),
        "impossible length",
    ),
    "a head of 16 bytes": (
        raw_payload(struct.pack("<4sI", b"UWT1", 16) + bytes(1000)),
        "impossible length",
    ),
    "a head longer than tables and chunks can make it": (
        raw_payload(struct.pack("<4sI", b"UWT1", 1 << 21) + bytes(1 << 21)),
        "impossible length",
    ),
    "sections of 4 GB each": (head(lambda h: None, [0xFFFFFFFF] * 5), "longer than its head"),
    "no directory": (head(lambda h: setattr(h, "directory", b"")), "directory"),
    "a longer directory": (
        head(lambda h: setattr(h, "directory", h.directory + bytes(32))),
        "directory",
    ),
    "chunks of 3 MB each": (
        head(lambda h: setattr(h, "directory", b"\xff\xff\x0f\x00" * 15)),
        "length",
    ),
    "no outlier section": (section(0, b""), "outlier"),
    "a window beyond the exponents": (section(0, struct.pack("<HBx", 65535, 15)), "window"),
    "a window of another size": (section(0, struct.pack("<HBx", 100, 200)), "window"),
    "no grid section": (section(1, b""), "grid"),
    "255 mantissa bits": (section(1, b"\xff\0\0"), "mantissa bits"),
    "127 tables in 3 bytes": (section(1, b"\0\x7f\0"), "cut short|4096"),
    "tables for contexts of symbols": (section(1, b"\0\x90\0"), "contexts that nothing predicts"),
    "no tile_svd section": (section(2, b""), "tile_svd"),
    "255 contexts": (section(2, b"\xff" + bytes(600)), "tile_svd|zstd"),
    "a bound section": (section(3, b"\1"), "bound"),
    "no pack section": (section(4, b""), "pack"),
    "chunks of 2**60 words": (section(4, b"\x3c"), "pack"),
    "chunks of another size": (section(4, b"\x0d"), "pack|directory|damaged|length"),
}

# --- of safetensors, whose source header is JSON in the manifest ----------------------------

SAFETENSORS_SOURCES: dict[str, Refusal] = {
    "a size of one byte less": (source_header(lambda d: None, 35527), "1 bytes missing"),
    "a size of a terabyte": (source_header(lambda d: None, TERABYTE), "belong to none"),
    "a header that is no frame": (source_header_frame(b"nothing", 7), "zstd"),
    "a header that claims a terabyte": (
        source_header_frame(frame_declaring(TERABYTE), TERABYTE),
        "impossible size",
    ),
    "a header whose frame claims a terabyte": (
        source_header_frame(frame_declaring(TERABYTE), 300),
        f"declares {TERABYTE}",
    ),
    "a header that expands to 90 MB": (
        source_header_frame(zstandard.compress(bytes(90_000_000)), 300),
        "declares 90000000",
    ),
    "a header of a megabyte of white space": (
        source_header_frame(zstandard.compress(bytes(1_000_000)), 1_000_000),
        "impossible size",
    ),
    "a header of another tensor": (
        source_header(lambda d: d.update(other=d.pop("noise"))),
        "other|digests",
    ),
    "a header without a tensor": (
        source_header(lambda d: d.pop("proj.weight"), 25288),
        "proj.weight",
    ),
    "a header with other metadata": (
        source_header(lambda d: d.update(__metadata__={"format": "tf"})),
        "metadata",
    ),
}

SAFETENSORS_SHAPES: dict[str, Refusal] = {
    "a tensor of a terabyte": (shape(CODED, [1 << 32, 128], TERABYTE), "embed.weight"),
    "a tensor of 2**62 bytes": (shape(CODED, [1 << 61], 1 << 62), "embed.weight"),
    "a tensor of more than 64 bits": (shape(CODED, [1 << 40] * 3, 1 << 62), "overflows"),
    "a tensor of negative size": (shape(CODED, [-1, 8], -16), "not a list of sizes"),
    "a tensor of one row less": (shape(CODED, [95, 128], 95 * 256), "embed.weight"),
    "a tensor without elements": (shape(CODED, [0, 128], 0), "embed.weight"),
    "scales of 2**33 rows": (huge_scales, "embed.weight"),
    "a context of a tensor of one column": (one_column, "tile_svd"),
}


# --- of GGUF, whose source header is a key of its own ---------------------------------------


def changed_source(old: bytes, new: bytes, size: int | None = None) -> Edit:
    """Return an edit that replaces bytes of the source header."""

    def edit(archive: GgufArchive) -> None:
        assert archive.source.count(old) == 1
        archive.set_source(archive.source.replace(old, new), size)

    return edit


def packed_source(data: bytes, claimed: int) -> Edit:
    """Return an edit that puts any bytes in place of the compressed source header."""

    def edit(archive: GgufArchive) -> None:
        source = archive.manifest["source"]
        archive.packed = data + bytes(-len(data) % 8)
        source |= {"header_packed": len(data), "header_bytes": claimed}
        source["size"] = max(source["size"], claimed)

    return edit


def source_key(key: bytes) -> Edit:
    """Return an edit that puts another key in place of the one with the source header."""

    def edit(archive: GgufArchive) -> None:
        archive.source_key = key

    return edit


def claimed_rows(rows: int, size: int | None = None) -> Edit:
    """Return an edit of the rows of the first tensor in the source header and the manifest."""
    change = changed_source(struct.pack("<2Q", 128, 96), struct.pack("<2Q", 128, rows), size)

    def edit(archive: GgufArchive) -> None:
        change(archive)
        archive.manifest["tensors"][CODED]["shape"] = [rows, 128]

    return edit


GGUF_SOURCES: dict[str, Refusal] = {
    "no source header": (source_key(b""), "lost the header of its source"),
    "a source header that is text": (
        source_key(gguf_files.text(b"unweight.source_header", b"x" * 80)),
        "no array of 64-bit words",
    ),
    "a source header of bytes": (
        source_key(gguf_files.key(b"unweight.source_header", 9, gguf_files.array(0, 8, bytes(8)))),
        "no array of 64-bit words",
    ),
    "a negative packed size": (manifest("source", "header_packed", to=-1), "not a size"),
    "a packed size that is text": (manifest("source", "header_packed", to="9"), "not a size"),
    "a packed size of nothing": (manifest("source", "header_packed", to=0), "zstd"),
    "a packed size too small": (manifest("source", "header_packed", to=40), "zstd"),
    "a frame that claims a terabyte": (
        packed_source(frame_declaring(TERABYTE), TERABYTE),
        "impossible size",
    ),
    "a frame that claims a terabyte and not its size": (
        packed_source(frame_declaring(TERABYTE), 300),
        f"declares {TERABYTE}",
    ),
    "a frame that expands to 90 MB": (
        packed_source(zstandard.compress(bytes(90_000_000)), 300),
        "declares 90000000",
    ),
    "a header without magic": (changed_source(b"GGUF", b"GGML"), "source header is damaged"),
    "a header of a tensor too few": (
        changed_source(struct.pack("<IQQ", 3, 5, 4), struct.pack("<IQQ", 3, 4, 4)),
        "damaged",
    ),
    "a header with another alignment": (
        changed_source(gguf_files.aligned(64), gguf_files.aligned(4096)),
        "another length than its contents",
    ),
    "a header that names another tensor": (changed_source(b"noise", b"voice"), "'voice'"),
    "a size of one byte less": (changed_source(b"GGUF", b"GGUF", 26_000), "missing at the end"),
    "a size of a terabyte": (changed_source(b"GGUF", b"GGUF", TERABYTE), "belong to none"),
    "padding that is no base64": (manifest("source", "padding", to="***"), "damaged"),
    "padding that is no frame": (manifest("source", "padding", to="AAAA"), "zstd"),
    "padding of other bytes": (
        manifest("source", "padding", to="KLUv/SBIhQAAOHBhZHBwYWQCAFfRQE1nBA=="),
        "zstd|declares",
    ),
    "a tensor of a terabyte": (claimed_rows(1 << 32, TERABYTE), "missing|overlaps|belong"),
    "a tensor of more than 64 bits": (claimed_rows(1 << 62), "overflow"),
    "a tensor of fewer rows": (claimed_rows(64), "belong to no tensor"),
}

COMMON = (VERSIONS, TENSORS, PIPELINES, SOURCES, HEADS)
TABLES = {
    "safetensors": (*COMMON, SAFETENSORS_SOURCES, SAFETENSORS_SHAPES),
    "gguf": (*COMMON, GGUF_SOURCES),
}
REFUSALS: list[tuple[str, str, Refusal, type[UnweightError]]] = [
    (container, name, refusal, error)
    for container, tables in TABLES.items()
    for table, error in ((FUTURE, FormatError), *((each, IntegrityError) for each in tables))
    for name, refusal in table.items()
]
