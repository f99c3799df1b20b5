"""Files made to deceive: every digest is right, but what they say is not.

All must be refused before anything of a claimed size is allocated, so each runs with little memory.
"""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from tests.support.edits import (
    CODED,
    STORED,
    TERABYTE,
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
QUIET = NoProgress()

Refusal = tuple[Edit, str]  # what is wrong, and a pattern of the message


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    coded = folder / "honest.safetensors"
    options = CompressOptions(stages=SMALL_MODEL_STAGES)
    compress(small_model(folder / "model.safetensors"), coded, options, QUIET)
    return coded


FUTURE: dict[str, Refusal] = {
    "a newer major version": (manifest("format", to=[2, 3]), r"version 2\.3.*up to 1\.x.*upgrade"),
    "a far newer version": (manifest("format", to=[10**12, 0]), "upgrade"),
    "an unknown feature": (manifest("features", to=["tiled"]), "'tiled'.*upgrade"),
    "the mode error-bounded": (manifest("mode", to="error-bounded"), "'error-bounded'.*upgrade"),
    "an epsilon in the lossless mode": (manifest("epsilon", to=0.01), "upgrade"),
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
}

SOURCES: dict[str, Refusal] = {
    "a negative size": (manifest("source", "size", to=-1), "-1 is not a size"),
    "a size that is a fraction": (manifest("source", "size", to=1.5), "not a size"),
    "a size of one byte less": (source_header(lambda d: None, 35527), "1 bytes missing"),
    "a size of a terabyte": (source_header(lambda d: None, TERABYTE), "belong to none"),
    "an unknown container": (manifest("source", "container", to="tar"), "'tar'"),
    "a container that is a list": (manifest("source", "container", to=[]), "damaged"),
    "a digest of another kind": (manifest("source", "sha256", to="0" * 63), "not a digest"),
    "another SHA-256": (manifest("source", "sha256", to="0" * 64), "SHA-256"),
    "a source that is a list": (manifest("source", to=[]), "damaged"),
    "no source": (without("source"), "'source'"),
    "a header that is no base64": (manifest("source", "header", to="***"), "damaged"),
    "a header that is no text": (manifest("source", "header", to=7), "damaged"),
    "a header that is no frame": (source_header_frame(b"nothing", 7), "zstd"),
    "a header that claims a terabyte": (
        source_header_frame(struct.pack("<IBQ", 0xFD2FB528, 0xE0, TERABYTE), TERABYTE),
        "impossible size",
    ),
    "a header whose frame claims a terabyte": (
        source_header_frame(struct.pack("<IBQ", 0xFD2FB528, 0xE0, TERABYTE), 300),
        f"declares {TERABYTE}",
    ),
    "a header that expands to 90 MB": (
        source_header_frame(zstandard.compress(bytes(90_000_000)), 300),
        "declares 90000000",
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
    "stages in another order": (pipeline("stages", 0, "name", to="grid"), "pipeline"),
    "no stages": (pipeline("stages", to=[]), "pipeline"),
    "stages that are a number": (pipeline("stages", to=5), "pipeline"),
    "pipelines that are a number": (manifest("pipelines", to=5), "damaged"),
    "pipelines of numbers": (manifest("pipelines", to=[5]), "damaged"),
    "no pipelines": (manifest("pipelines", to=[]), "pipeline that is not there"),
}

HEADS: dict[str, Refusal] = {
    "a tensor of a terabyte": (shape(CODED, [1 << 32, 128], TERABYTE), "embed.weight"),
    "a tensor of 2**62 bytes": (shape(CODED, [1 << 61], 1 << 62), "embed.weight"),
    "a tensor of more than 64 bits": (shape(CODED, [1 << 40] * 3, 1 << 62), "overflows"),
    "a tensor of negative size": (shape(CODED, [-1, 8], -16), "not a list of sizes"),
    "a tensor of one row less": (shape(CODED, [95, 128], 95 * 256), "embed.weight"),
    "a tensor without elements": (shape(CODED, [0, 128], 0), "embed.weight"),
    "scales of 2**33 rows": (huge_scales, "embed.weight"),
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
    "a context of a tensor of one column": (one_column, "tile_svd"),
    "a bound section": (section(3, b"\1"), "bound"),
    "no pack section": (section(4, b""), "pack"),
    "chunks of 2**60 words": (section(4, b"\x3c"), "pack"),
    "chunks of another size": (section(4, b"\x0d"), "pack|directory|damaged|length"),
}

REFUSALS = [
    *(pytest.param(*row, FormatError, id=name) for name, row in FUTURE.items()),
    *(
        pytest.param(*row, IntegrityError, id=name)
        for table in (VERSIONS, SOURCES, TENSORS, PIPELINES, HEADS)
        for name, row in table.items()
    ),
]


@pytest.fixture
def forged(honest: Path, tmp_path: Path) -> Callable[[Edit], Path]:
    """Return a function that writes an edited copy of the honest file."""

    def forge(edit: Edit) -> Path:
        archive = Archive.read(honest)
        edit(archive)
        return archive.write(tmp_path / "forged.safetensors", {"format": "pt"})

    return forge


@pytest.mark.parametrize(("edit", "words", "error"), REFUSALS)
def test_refused(
    edit: Edit, words: str, error: type[UnweightError], forged: Callable[[Edit], Path]
) -> None:
    path = forged(edit)
    with at_most_more(MEMORY):
        with pytest.raises(error, match=words) as caught:
            verify(path, None, threads=1, progress=QUIET)
        with pytest.raises(error, match=words):
            decompress(path, path.with_name("out"), threads=1, force=False, progress=QUIET)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("edit", "words", "error"), REFUSALS)
def test_inspecting_is_as_careful(
    edit: Edit, words: str, error: type[UnweightError], forged: Callable[[Edit], Path]
) -> None:
    """It may show a file whose damage is elsewhere, but it neither crashes nor allocates much."""
    path = forged(edit)
    for look in (lambda: inspect_header(path), lambda: inspect_stages(path, CODED)):
        with at_most_more(MEMORY), suppress(UnweightError):
            look()


def test_the_surgery_leaves_an_unchanged_file_alone(honest: Path, tmp_path: Path) -> None:
    archive = Archive.read(honest)
    for name in archive.manifest["tensors"]:
        found, chunks = Head.read(archive.payloads[name])
        assert found.to_bytes() + chunks == archive.payloads[name]
    copy = archive.write(tmp_path / "copy.safetensors")
    original = honest.with_name("model.safetensors")
    with at_most_more(MEMORY):
        verify(copy, original, threads=1, progress=QUIET)


def test_a_duplicate_tensor(honest: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.safetensors"
    data = honest.read_bytes().replace(b'"nothing":{', b'"noise"  :{', 1)
    path.write_bytes(data)
    with pytest.raises(FormatError, match="duplicate key 'noise'"):
        verify(path, None, threads=1, progress=QUIET)


def test_a_newer_minor_version_is_read(honest: Path, tmp_path: Path) -> None:
    archive = Archive.read(honest)
    archive.manifest |= {"format": [1, 7], "remark": "unknown keys mean nothing to an older reader"}
    verify(archive.write(tmp_path / "newer.safetensors"), None, threads=1, progress=QUIET)


def test_metadata_of_the_container_must_be_that_of_the_source(honest: Path, tmp_path: Path) -> None:
    path = Archive.read(honest).write(tmp_path / "other.safetensors", {"format": "tf"})
    with pytest.raises(IntegrityError, match="metadata"):
        verify(path, None, threads=1, progress=QUIET)


def test_a_header_rewritten_by_another_program(honest: Path, tmp_path: Path) -> None:
    """Tools that add metadata load and save the header; the digest tells."""
    data = honest.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    document = json.loads(data[8:end])
    document["__metadata__"]["note"] = "converted"
    path = tmp_path / "rewritten.safetensors"
    path.write_bytes(framed(document) + data[end:])
    with pytest.raises(IntegrityError, match="rewritten by another program"):
        verify(path, None, threads=1, progress=QUIET)


def test_framing_is_as_the_format_says() -> None:
    assert framed({}) == struct.pack("<Q", 8) + b"{}      "
