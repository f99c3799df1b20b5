"""The header of an Unweight file: its digest, and that it agrees with its manifest."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from unweight.archive.header import check_not_archive, read_manifest, write_header
from unweight.containers.base import ContainerIndex
from unweight.containers.safetensors import header_bytes, parse_index
from unweight.manifest import DIGEST_KEY, MANIFEST_KEY, CodedTensor, Manifest
from unweight_codecs.errors import FormatError, IntegrityError

SIZES = [9, 4]


def source(metadata: dict[str, str] | None) -> ContainerIndex:
    header = header_bytes([("w", "BF16", (2, 4), 16), ("b", "F32", (), 4)], metadata)
    return parse_index(header, len(header) + 20)


def manifest(metadata: dict[str, str] | None = None) -> Manifest:
    coded = {"w": CodedTensor(0, "f" * 16)}
    return Manifest(source(metadata), "0" * 64, ({"name": "x"},), coded, {"b": "0" * 16})


def index_of(header: bytes) -> ContainerIndex:
    return parse_index(header, len(header) + sum(SIZES))


METADATA = [None, {}, {"format": "pt"}, {"a\n": "é\u2028", "long": "x" * 5000}]


@pytest.mark.parametrize("metadata", METADATA, ids=["none", "empty", "one", "odd"])
@pytest.mark.parametrize("length", [None, 9000])
def test_round_trip(metadata: dict[str, str] | None, length: int | None) -> None:
    header = write_header(manifest(metadata), SIZES, length)
    index = index_of(header)
    assert read_manifest(index) == manifest(metadata)
    assert [entry.nbytes for entry in index.tensors] == SIZES
    assert len(header) == (length or len(header))


def test_coded_tensors_become_bytes_and_stored_ones_stay() -> None:
    coded, stored = index_of(write_header(manifest(), SIZES)).tensors
    assert (coded.spec.name, coded.spec.dtype, coded.spec.shape) == ("w", "U8", (9,))
    assert stored.spec == source(None).tensors[1].spec


def test_the_digest_lies_at_a_fixed_place_and_covers_every_other_byte() -> None:
    header = write_header(manifest({"format": "pt"}), SIZES)
    assert header[8:].startswith(b'{"__metadata__":{"unweight.digest":"')
    noticed = 0
    for at in range(8, len(header)):
        damaged = header[:at] + bytes([header[at] ^ 1 << at % 8]) + header[at + 1 :]
        with pytest.raises((IntegrityError, FormatError)):
            read_manifest(index_of(damaged))
        noticed += 1
    assert noticed == len(header) - 8


def test_a_header_that_another_program_wrote_again() -> None:
    index = index_of(write_header(manifest({"format": "pt"}), SIZES))
    entries = [(t.spec.name, t.spec.dtype, t.spec.shape, t.nbytes) for t in index.tensors]
    metadata = dict(reversed((index.metadata or {}).items()))
    with pytest.raises(IntegrityError, match="another program"):
        read_manifest(index_of(header_bytes(entries, metadata)))


def test_a_file_of_another_program() -> None:
    with pytest.raises(FormatError, match="not an Unweight file"):
        read_manifest(source({"format": "pt"}))


@pytest.mark.parametrize("key", [MANIFEST_KEY, DIGEST_KEY])
def test_what_unweight_wrote_is_not_compressed_again(key: str) -> None:
    with pytest.raises(FormatError, match="already compressed"):
        check_not_archive(source({key: "x"}), "model.safetensors")
    check_not_archive(source({"format": "pt"}), "model.safetensors")
    check_not_archive(source(None), "model.safetensors")


def other_tensor(found: Manifest) -> Manifest:
    header = header_bytes([("v", "BF16", (2, 4), 16), ("b", "F32", (), 4)], None)
    other = parse_index(header, len(header) + 20)
    return replace(found, source=other, coded={"v": CodedTensor(0, "f" * 16)})


def fewer_tensors(found: Manifest) -> Manifest:
    header = header_bytes([("w", "BF16", (2, 4), 16)], None)
    return replace(found, source=parse_index(header, len(header) + 16), stored_digests={})


def other_metadata(found: Manifest) -> Manifest:
    return replace(found, source=source({"format": "tf"}))


def nothing_coded(found: Manifest) -> Manifest:
    return replace(found, coded={}, stored_digests={"w": "0" * 16, "b": "0" * 16})


def everything_coded(found: Manifest) -> Manifest:
    coded = {"w": CodedTensor(0, "f" * 16), "b": CodedTensor(0, "f" * 16)}
    return replace(found, coded=coded, stored_digests={})


@pytest.mark.parametrize(
    "change", [other_tensor, fewer_tensors, other_metadata, nothing_coded, everything_coded]
)
def test_a_manifest_of_another_file(
    change: Callable[[Manifest], Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest is right: whoever made this file wanted it to be believed."""
    honest = manifest()
    text = change(honest).to_json()
    monkeypatch.setattr(Manifest, "to_json", lambda self, inline_header: text)
    header = write_header(honest, SIZES)
    monkeypatch.undo()
    with pytest.raises(IntegrityError):
        read_manifest(index_of(header))
