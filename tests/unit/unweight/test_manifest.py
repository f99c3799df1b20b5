"""The manifest: canonical JSON that says what a file was, and which versions may read it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from unweight.containers.base import ContainerIndex
from unweight.containers.safetensors import header_bytes, parse_index
from unweight.manifest import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    GENERATOR,
    MAX_SPARE_PIPELINES,
    CodedTensor,
    Manifest,
    parse_manifest,
)
from unweight_codecs.entropy import zstd
from unweight_codecs.errors import FormatError, IntegrityError

SHA256 = "0123456789abcdef" * 4
PIPELINES = ({"name": "default", "stages": []},)


def index() -> ContainerIndex:
    entries = [
        ("zeta", "BF16", (2, 4), 16),
        ("alpha", "F32", (), 4),
        ("größe \n\u2028", "I8", (3,), 3),
        ("empty", "F16", (0, 7), 0),
    ]
    header = header_bytes(entries, {"format": "pt"})
    return parse_index(header, len(header) + 23)


def manifest() -> Manifest:
    stored = {name: f"{k:016x}" for k, name in enumerate(("alpha", "größe \n\u2028", "empty"))}
    return Manifest(index(), SHA256, PIPELINES, {"zeta": CodedTensor(0, "f" * 16)}, stored)


def document(**changes: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(manifest().to_json())
    return found | changes


def parse(found: dict[str, Any]) -> Manifest:
    return parse_manifest(json.dumps(found))


def test_round_trip() -> None:
    again = parse_manifest(manifest().to_json())
    assert again == manifest()
    assert again.to_json() == manifest().to_json()


def test_a_large_source_header_is_compressed_well_where_that_is_asked_for() -> None:
    entries = [(f"layers.{k}.w{k * k}", "BF16", (k, 4), 8 * k) for k in range(6000)]
    header = header_bytes(entries, None)
    assert len(header) > 1 << 18
    large = replace(manifest(), source=parse_index(header, len(header) + 8 * sum(range(6000))))
    fast, small = large.packed_header, replace(large, small_header=True).packed_header
    assert len(small) < len(fast)
    assert zstd.decompress(small, len(header)) == zstd.decompress(fast, len(header)) == header


def test_a_small_source_header_is_always_compressed_well() -> None:
    assert replace(manifest(), small_header=True).packed_header == manifest().packed_header


def test_the_source_comes_back_whole() -> None:
    source = parse_manifest(manifest().to_json()).source
    assert source == index()
    assert source.header == index().header


def test_the_json_is_canonical() -> None:
    text = manifest().to_json()
    assert text.isascii()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert json.loads(text)["format"] == [FORMAT_MAJOR, FORMAT_MINOR]
    assert json.loads(text)["generator"] == GENERATOR


def test_digests_of_coded_and_stored_tensors() -> None:
    again = parse_manifest(manifest().to_json())
    digests = [again.digest_of(entry.spec.name) for entry in again.source.tensors]
    assert sorted(digests) == ["0" * 16, "0" * 15 + "1", "0" * 15 + "2", "f" * 16]
    assert again.digest_of("zeta") == "f" * 16


def test_keys_of_later_minor_versions_are_ignored() -> None:
    later = document(format=[FORMAT_MAJOR, FORMAT_MINOR + 7], something={"new": [1]})
    assert parse(later) == replace(manifest(), format=(FORMAT_MAJOR, FORMAT_MINOR + 7))


def test_the_generator_is_kept() -> None:
    assert parse(document(generator="unweight 9.9")).generator == "unweight 9.9"


def test_the_version_is_kept() -> None:
    later = parse(document(format=[FORMAT_MAJOR, FORMAT_MINOR + 7]))
    assert later.format == (FORMAT_MAJOR, FORMAT_MINOR + 7)


def test_a_source_header_above_the_limit() -> None:
    size = len(index().header)
    assert parse_manifest(manifest().to_json(), header_limit=size) == manifest()
    with pytest.raises(IntegrityError, match="impossible size"):
        parse_manifest(manifest().to_json(), header_limit=size - 1)


def test_as_many_pipelines_as_rules_may_make() -> None:
    most = len(index().tensors) + MAX_SPARE_PIPELINES
    assert len(parse(document(pipelines=[*PIPELINES] * most)).pipelines) == most
    with pytest.raises(IntegrityError, match="too many"):
        parse(document(pipelines=[*PIPELINES] * (most + 1)))


NEWER: dict[str, tuple[dict[str, object], str]] = {
    "major version": ({"format": [FORMAT_MAJOR + 1, 3], "generator": "unweight 7.1"}, "2.3"),
    "feature": ({"features": ["sparse", "delta"]}, "'delta', 'sparse'"),
    "mode": ({"mode": "error-bounded"}, "'error-bounded'"),
}


@pytest.mark.parametrize("case", NEWER)
def test_what_a_newer_version_wrote_is_refused_with_a_way_out(case: str) -> None:
    changes, named = NEWER[case]
    with pytest.raises(FormatError) as refusal:
        parse(document(**changes))
    assert named in refusal.value.message
    assert refusal.value.hint == "upgrade unweight"


def test_a_newer_version_names_both_versions_and_the_generator() -> None:
    with pytest.raises(FormatError) as refusal:
        parse(document(format=[FORMAT_MAJOR + 1, 3], generator="unweight 7.1"))
    for part in (f"{FORMAT_MAJOR + 1}.3", "unweight 7.1", GENERATOR, f"{FORMAT_MAJOR}.x"):
        assert part in refusal.value.message


DAMAGED: dict[str, dict[str, object]] = {
    "no format": {"format": None},
    "format of one number": {"format": [1]},
    "format of text": {"format": ["1", "0"]},
    "format of truth": {"format": [True, False]},
    "format zero": {"format": [0, 9]},
    "negative minor version": {"format": [1, -1]},
    "features as text": {"features": "none"},
    "features as a number": {"features": 5},
    "source missing": {"source": None},
    "tensors as a list": {"tensors": []},
    "tensors as text": {"tensors": "zeta"},
    "tensor that is no object": {"tensors": {"zeta": [0]}},
    "unknown tensor": {"tensors": {"other": {"pipeline": 0, "dtype": "BF16", "shape": [2, 4]}}},
    "pipelines as a number": {"pipelines": 3},
    "pipelines as text": {"pipelines": "default"},
    "no pipelines": {"pipelines": []},
    "digests missing": {"stored": ""},
    "digests in capitals": {"stored": "A" * 48},
    "digests as a list": {"stored": list("0" * 48)},
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_manifest(case: str) -> None:
    with pytest.raises(IntegrityError):
        parse(document(**DAMAGED[case]))


@pytest.mark.parametrize("key", sorted(document()))
def test_a_missing_key(key: str) -> None:
    found = document()
    del found[key]
    with pytest.raises(IntegrityError):
        parse(found)


SOURCES: dict[str, dict[str, object]] = {
    "unknown container": {"container": "zip"},
    "container that is a list": {"container": ["safetensors"]},
    "header that is no base64": {"header": "?!"},
    "header that is no zstd": {"header": "AAAA"},
    "header of another length": {"header_bytes": 7},
    "header longer than the file": {"header_bytes": 1 << 40},
    "negative size": {"size": -1},
    "size as text": {"size": "23"},
    "size that is true": {"size": True},
    "another size": {"size": 1 << 50},
    "digest cut short": {"sha256": SHA256[:-1]},
    "digest that is no text": {"sha256": 5},
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_damaged_source(case: str) -> None:
    found = document()
    found["source"] |= SOURCES[case]
    with pytest.raises(IntegrityError):
        parse(found)


TENSORS: dict[str, dict[str, object]] = {
    "another dtype": {"dtype": "F16"},
    "another shape": {"shape": [4, 2]},
    "shape as text": {"shape": "24"},
    "pipeline that is not there": {"pipeline": 1},
    "negative pipeline": {"pipeline": -1},
    "pipeline that is false": {"pipeline": False},
    "digest of other digits": {"digest": "x" * 16},
    "digest that is a number": {"digest": 0},
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_damaged_tensor(case: str) -> None:
    found = document()
    found["tensors"]["zeta"] |= TENSORS[case]
    with pytest.raises(IntegrityError):
        parse(found)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"a":1,"a":2}', "\ud800", "{}"], ids=ascii
)
def test_what_is_no_manifest(text: str) -> None:
    with pytest.raises(IntegrityError):
        parse_manifest(text)
