"""Files made to deceive: every digest is right, but what they say is not.

All must be refused before anything of a claimed size is allocated, so each runs with little memory.
"""

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.support.memory import at_most_more
from tests.support.models import SMALL_MODEL_STAGES, small_model
from tests.support.surgery import Archive, Head, framed
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError
from unweight_codecs.operations.compress import CompressOptions, compress
from unweight_codecs.operations.decompress import decompress
from unweight_codecs.operations.inspect import inspect_header, inspect_stages
from unweight_codecs.operations.progress import NoProgress
from unweight_codecs.operations.verify import verify

MEMORY = 64 << 20
TERABYTE = 1 << 40
CODED, OTHER_CODED, STORED = "embed.weight", "proj.weight", "noise"

Edit = Callable[[Archive], None]
Refusal = tuple[str, Edit, type[UnweightError], str]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    coded = folder / "honest.safetensors"
    options = CompressOptions(stages=SMALL_MODEL_STAGES)
    compress(small_model(folder / "model.safetensors"), coded, options, NoProgress())
    return coded


def manifest(*path: str | int, to: object) -> Edit:
    """Return an edit that sets one value of the manifest."""

    def edit(archive: Archive) -> None:
        place: Any = archive.manifest
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return edit


def without(*path: str) -> Edit:
    """Return an edit that removes one value of the manifest."""

    def edit(archive: Archive) -> None:
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

    def edit(archive: Archive) -> None:
        found, chunks = Head.read(archive.payloads[CODED])
        change(found)
        set_payload(archive, found.to_bytes(lengths) + chunks)

    return edit


def section(number: int, data: bytes) -> Edit:
    """Return an edit that replaces the section of one stage."""

    def change(found: Head) -> None:
        found.sections[number] = data

    return head(change)


def set_payload(archive: Archive, payload: bytes) -> None:
    archive.payloads[CODED] = payload
    archive.tensors[CODED]["shape"] = [len(payload)]


def raw_payload(payload: bytes) -> Edit:
    return lambda archive: set_payload(archive, payload)


def swap_order(archive: Archive) -> None:
    names = list(archive.tensors)
    names.remove(CODED)
    archive.tensors = {name: archive.tensors[name] for name in (*names, CODED)}


def exchange_payloads(archive: Archive) -> None:
    one, two = archive.payloads[CODED], archive.payloads[OTHER_CODED]
    archive.payloads |= {CODED: two, OTHER_CODED: one}
    archive.tensors[CODED]["shape"], archive.tensors[OTHER_CODED]["shape"] = [len(two)], [len(one)]


def drop(name: str) -> Edit:
    def edit(archive: Archive) -> None:
        del archive.tensors[name]

    return edit


def add_tensor(archive: Archive) -> None:
    archive.tensors["surplus"] = {"dtype": "U8", "shape": [1]}
    archive.payloads["surplus"] = b"x"


def change_stored_shape(archive: Archive) -> None:
    archive.tensors[STORED]["shape"] = [7, 100]


def code_as_other_dtype(archive: Archive) -> None:
    archive.tensors[CODED]["dtype"] = "I8"


def pretend_coded(archive: Archive) -> None:
    """Declare a stored tensor as coded, with its own bytes as the payload."""
    tensors = archive.manifest["tensors"]
    tensors[STORED] = {**tensors[CODED], "dtype": "U8", "shape": [700]}
    archive.manifest["stored"] = archive.manifest["stored"][16:]


def pipeline(*path: str | int, to: object) -> Edit:
    return manifest("pipelines", 0, *path, to=to)


def huge_scales(archive: Archive) -> None:
    """Claim 2**33 rows whose scales are one small zstd frame of zeros."""
    rows = 1 << 33
    shape(CODED, [rows, 16], rows * 32)(archive)
    frame = struct.pack("<IBQ", 0xFD2FB528, 0xE0, rows)
    scales = struct.pack("<I", len(frame)) + frame
    section(2, b"\2\1\0" + scales + scales)(archive)


def one_column(archive: Archive) -> None:
    shape(CODED, [96 * 128, 1], 96 * 256)(archive)


VERSIONS: list[Refusal] = [
    ("a newer major version", manifest("format", to=[2, 3]), FormatError, r"version 2\.3.*up to 1\.x.*upgrade"),
    ("a far newer version", manifest("format", to=[10**12, 0]), FormatError, "upgrade"),
    ("a version before the first", manifest("format", to=[0, 9]), IntegrityError, "impossible format version"),
    ("a negative minor version", manifest("format", to=[1, -1]), IntegrityError, "impossible format version"),
    ("a version of one number", manifest("format", to=[1]), IntegrityError, "no format version"),
    ("a version that is text", manifest("format", to="1.0"), IntegrityError, "no format version"),
    ("no version", without("format"), IntegrityError, "no format version"),
    ("an unknown feature", manifest("features", to=["tiled"]), FormatError, "'tiled'.*upgrade"),
    ("features that are a number", manifest("features", to=1), IntegrityError, "features"),
    ("features that are null", manifest("features", to=None), IntegrityError, "features"),
    ("features that are text", manifest("features", to="ab"), IntegrityError, "features"),
    ("the mode error-bounded", manifest("mode", to="error-bounded"), FormatError, "'error-bounded'.*upgrade"),
    ("an epsilon in the lossless mode", manifest("epsilon", to=0.01), FormatError, "upgrade"),
]

SOURCES: list[Refusal] = [
    ("a negative size", manifest("source", "size", to=-1), IntegrityError, "-1 is not a size"),
    ("a size that is a fraction", manifest("source", "size", to=1.5), IntegrityError, "not a size"),
    ("a size of one byte less", source_header(lambda d: None, 35527), IntegrityError, "1 bytes missing"),
    ("a size of a terabyte", source_header(lambda d: None, TERABYTE), IntegrityError, "belong to none"),
    ("an unknown container", manifest("source", "container", to="tar"), IntegrityError, "'tar'"),
    ("a container that is a list", manifest("source", "container", to=[]), IntegrityError, "damaged"),
    ("a digest of another kind", manifest("source", "sha256", to="0" * 63), IntegrityError, "not a digest"),
    ("another SHA-256", manifest("source", "sha256", to="0" * 64), IntegrityError, "SHA-256"),
    ("a source that is a list", manifest("source", to=[]), IntegrityError, "damaged"),
    ("no source", without("source"), IntegrityError, "'source'"),
    ("a header that is no base64", manifest("source", "header", to="***"), IntegrityError, "damaged"),
    ("a header that is no text", manifest("source", "header", to=7), IntegrityError, "damaged"),
    ("a header that is no frame", source_header_frame(b"nothing", 7), IntegrityError, "zstd"),
    (
        "a header that claims a terabyte",
        source_header_frame(struct.pack("<IBQ", 0xFD2FB528, 0xE0, TERABYTE), TERABYTE),
        IntegrityError,
        "impossible size",
    ),
    (
        "a header whose frame claims a terabyte",
        source_header_frame(struct.pack("<IBQ", 0xFD2FB528, 0xE0, TERABYTE), 300),
        IntegrityError,
        f"declares {TERABYTE}",
    ),
    (
        "a header that expands to 90 MB",
        source_header_frame(zstandard.compress(bytes(90_000_000)), 300),
        IntegrityError,
        "declares 90000000",
    ),
    (
        "a header of another tensor",
        source_header(lambda d: d.update(other=d.pop("noise"))),
        IntegrityError,
        "other|digests",
    ),
    (
        "a header without a tensor",
        source_header(lambda d: d.pop("proj.weight"), 25288),
        IntegrityError,
        "proj.weight",
    ),
    (
        "a header with other metadata",
        source_header(lambda d: d.update(__metadata__={"format": "tf"})),
        IntegrityError,
        "metadata",
    ),
]

TENSORS: list[Refusal] = [
    ("a pipeline out of range", manifest("tensors", CODED, "pipeline", to=1), IntegrityError, "pipeline that is not there"),
    ("a negative pipeline", manifest("tensors", CODED, "pipeline", to=-1), IntegrityError, "pipeline that is not there"),
    ("a pipeline that is true", manifest("tensors", CODED, "pipeline", to=True), IntegrityError, "pipeline that is not there"),
    ("another dtype", manifest("tensors", CODED, "dtype", to="F16"), IntegrityError, "another dtype or shape"),
    ("another shape", manifest("tensors", CODED, "shape", to=[128, 96]), IntegrityError, "another dtype or shape"),
    ("a negative shape", manifest("tensors", CODED, "shape", to=[-96, -128]), IntegrityError, "another dtype or shape"),
    ("another digest", manifest("tensors", CODED, "digest", to="0" * 16), IntegrityError, "wrong digest"),
    ("a digest too short", manifest("tensors", CODED, "digest", to="0"), IntegrityError, "not a digest"),
    ("a tensor that is not there", manifest("tensors", "absent", to={"pipeline": 0}), IntegrityError, "absent|dtype"),
    ("a coded tensor that is not listed", without("tensors", CODED), IntegrityError, "digests"),
    ("tensors that are a list", manifest("tensors", to=[]), IntegrityError, "damaged"),
    ("tensors that are null", manifest("tensors", to=None), IntegrityError, "damaged"),
    ("a tensor that is null", manifest("tensors", CODED, to=None), IntegrityError, "damaged"),
    ("no tensors", without("tensors"), IntegrityError, "'tensors'"),
    ("a digest of stored tensors too few", manifest("stored", to="0" * 32), IntegrityError, "digests"),
    ("digests that are a number", manifest("stored", to=0), IntegrityError, "damaged"),
    ("other digests of stored tensors", manifest("stored", to="0" * 48), IntegrityError, "'noise': wrong digest"),
    ("tensors in another order", swap_order, IntegrityError, "not where the source header has it"),
    ("payloads exchanged", exchange_payloads, IntegrityError, "tensor 'embed.weight'"),
    ("a tensor missing", drop(STORED), IntegrityError, "other tensors"),
    ("a tensor too many", add_tensor, IntegrityError, "other tensors"),
    ("a stored tensor of another shape", change_stored_shape, IntegrityError, "'noise' differs"),
    ("a coded tensor of another dtype", code_as_other_dtype, IntegrityError, "not a list of bytes"),
    ("a stored tensor declared as coded", pretend_coded, IntegrityError, "not a list of bytes|not begin"),
]

PIPELINES: list[Refusal] = [
    ("an unknown codec", pipeline("stages", 1, "name", to="acme.grid"), FormatError, "codec 'acme.grid'.*install"),
    ("a codec name of a megabyte", pipeline("stages", 1, "name", to="x" * 10**6), FormatError, "^.{,600}$"),
    ("a codec name that is a list", pipeline("stages", 1, "name", to=[]), IntegrityError, "pipeline"),
    ("an unknown setting", pipeline("stages", 1, "configuration", to={"depth": 1}), IntegrityError, "depth"),
    ("a setting out of range", pipeline("stages", 4, "configuration", to={"chunk_log2": 60}), IntegrityError, "chunk_log2"),
    ("a setting that is text", pipeline("stages", 4, "configuration", to={"chunk_log2": "17"}), IntegrityError, "chunk_log2"),
    ("a configuration that is a list", pipeline("stages", 4, "configuration", to=[1]), IntegrityError, "pipeline"),
    ("a configuration that is null", pipeline("stages", 4, "configuration", to=None), IntegrityError, "pipeline"),
    ("stages in another order", pipeline("stages", 0, "name", to="grid"), IntegrityError, "pipeline"),
    ("no stages", pipeline("stages", to=[]), IntegrityError, "pipeline"),
    ("stages that are a number", pipeline("stages", to=5), IntegrityError, "pipeline"),
    ("pipelines that are a number", manifest("pipelines", to=5), IntegrityError, "damaged"),
    ("pipelines of numbers", manifest("pipelines", to=[5]), IntegrityError, "damaged"),
    ("no pipelines", manifest("pipelines", to=[]), IntegrityError, "pipeline that is not there"),
]

HEADS: list[Refusal] = [
    ("a tensor of a terabyte", shape(CODED, [1 << 32, 128], TERABYTE), IntegrityError, "embed.weight"),
    ("a tensor of 2**62 bytes", shape(CODED, [1 << 61], 1 << 62), IntegrityError, "embed.weight"),
    ("a tensor of more than 64 bits", shape(CODED, [1 << 40] * 3, 1 << 62), IntegrityError, "overflows"),
    ("a tensor of negative size", shape(CODED, [-1, 8], -16), IntegrityError, "not a list of sizes"),
    ("a tensor of one row less", shape(CODED, [95, 128], 95 * 256), IntegrityError, "embed.weight"),
    ("a tensor without elements", shape(CODED, [0, 128], 0), IntegrityError, "embed.weight"),
    ("scales of 2**33 rows", huge_scales, IntegrityError, "embed.weight"),
    ("an empty payload", raw_payload(b""), IntegrityError, "not begin with an Unweight head"),
    ("a payload of zeros", raw_payload(bytes(1000)), IntegrityError, "not begin with an Unweight head"),
    ("a head of 4 GB", raw_payload(struct.pack("<4sI", b"UWT1", 0xFFFFFFF0) + bytes(1000)), IntegrityError, "impossible length"),
    ("a head of 16 bytes", raw_payload(struct.pack("<4sI", b"UWT1", 16) + bytes(1000)), IntegrityError, "impossible length"),
    ("sections of 4 GB each", head(lambda h: None, [0xFFFFFFFF] * 5), IntegrityError, "longer than its head"),
    ("no directory", head(lambda h: setattr(h, "directory", b"")), IntegrityError, "directory"),
    ("a longer directory", head(lambda h: setattr(h, "directory", h.directory + bytes(32))), IntegrityError, "directory"),
    ("chunks of 3 MB each", head(lambda h: setattr(h, "directory", b"\xff\xff\x0f\x00" * 15)), IntegrityError, "length"),
    ("no outlier section", section(0, b""), IntegrityError, "outlier"),
    ("a window beyond the exponents", section(0, struct.pack("<HBx", 65535, 15)), IntegrityError, "window"),
    ("a window of another size", section(0, struct.pack("<HBx", 100, 200)), IntegrityError, "window"),
    ("no grid section", section(1, b""), IntegrityError, "grid"),
    ("255 mantissa bits", section(1, b"\xff\0\0"), IntegrityError, "mantissa bits"),
    ("255 tables in 3 bytes", section(1, b"\0\xff\0"), IntegrityError, "cut short|4096"),
    ("no tile_svd section", section(2, b""), IntegrityError, "tile_svd"),
    ("255 contexts", section(2, b"\xff" + bytes(600)), IntegrityError, "tile_svd|zstd"),
    ("a context of a tensor of one column", one_column, IntegrityError, "tile_svd"),
    ("a bound section", section(3, b"\1"), IntegrityError, "bound"),
    ("no pack section", section(4, b""), IntegrityError, "pack"),
    ("chunks of 2**60 words", section(4, b"\x3c"), IntegrityError, "pack"),
    ("chunks of another size", section(4, b"\x0d"), IntegrityError, "directory|damaged|length"),
]

ALL = [*VERSIONS, *SOURCES, *TENSORS, *PIPELINES, *HEADS]


@pytest.mark.parametrize(
    ("edit", "error", "words"), [row[1:] for row in ALL], ids=[row[0] for row in ALL]
)
def test_refused(
    edit: Edit, error: type[UnweightError], words: str, honest: Path, tmp_path: Path
) -> None:
    archive = Archive.read(honest)
    edit(archive)
    path = archive.write(tmp_path / "hostile.safetensors", {"format": "pt"})
    with at_most_more(MEMORY):
        with pytest.raises(error, match=words) as caught:
            verify(path, None, threads=1, progress=NoProgress())
        with pytest.raises(error, match=words):
            decompress(path, tmp_path / "out", threads=1, force=False, progress=NoProgress())
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("row", [*SOURCES, *TENSORS, *HEADS], ids=lambda row: row[0])
def test_inspecting_is_as_careful(row: Refusal, honest: Path, tmp_path: Path) -> None:
    """It may show a file whose damage is elsewhere, but it neither crashes nor allocates much."""
    _, edit, *_ = row
    archive = Archive.read(honest)
    edit(archive)
    path = archive.write(tmp_path / "hostile.safetensors", {"format": "pt"})
    for look in (lambda: inspect_header(path), lambda: inspect_stages(path, CODED)):
        with at_most_more(MEMORY):
            try:
                look()
            except UnweightError as error:
                assert str(path) in str(error)


def test_the_surgery_leaves_an_unchanged_file_alone(honest: Path, tmp_path: Path) -> None:
    archive = Archive.read(honest)
    for name in archive.manifest["tensors"]:
        found, chunks = Head.read(archive.payloads[name])
        assert found.to_bytes() + chunks == archive.payloads[name]
    copy = archive.write(tmp_path / "copy.safetensors")
    with at_most_more(MEMORY):
        verify(copy, tmp_path / honest.with_name("model.safetensors"), threads=1, progress=NoProgress())


def test_a_duplicate_tensor(honest: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.safetensors"
    data = honest.read_bytes()
    path.write_bytes(data.replace(b'"noise":{', b'"nothi":{', 1).replace(b'"nothing":{', b'"nothi"  :{', 1))
    with pytest.raises(FormatError, match="duplicate key 'nothi'"):
        verify(path, None, threads=1, progress=NoProgress())


def test_a_newer_minor_version_is_read(honest: Path, tmp_path: Path) -> None:
    archive = Archive.read(honest)
    archive.manifest |= {"format": [1, 7], "remark": "unknown keys mean nothing to an older reader"}
    verify(archive.write(tmp_path / "newer.safetensors"), None, threads=1, progress=NoProgress())


def test_metadata_of_the_container_must_be_that_of_the_source(honest: Path, tmp_path: Path) -> None:
    path = Archive.read(honest).write(tmp_path / "other.safetensors", {"format": "tf"})
    with pytest.raises(IntegrityError, match="metadata"):
        verify(path, None, threads=1, progress=NoProgress())


def test_a_header_rewritten_by_another_program(honest: Path, tmp_path: Path) -> None:
    """Tools that add metadata load and save the header; the digest tells."""
    data = honest.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    document = json.loads(data[8:end])
    document["__metadata__"]["note"] = "converted"
    path = tmp_path / "rewritten.safetensors"
    path.write_bytes(framed(document) + data[end:])
    with pytest.raises(IntegrityError, match="rewritten by another program"):
        verify(path, None, threads=1, progress=NoProgress())


def test_framing_is_as_the_format_says() -> None:
    assert framed({}) == struct.pack("<Q", 8) + b"{}      "
