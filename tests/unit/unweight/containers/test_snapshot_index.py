"""The index of a sharded model: which shards it may name, and what it must be."""

import os
from pathlib import Path

import pytest

from tests.support.snapshots import (
    FIRST,
    INDEX,
    SECOND,
    paths,
    write_index,
    write_sharded,
    write_tiny,
)
from unweight.containers.directories.shard_index import MAX_INDEX_BYTES
from unweight.containers.directories.snapshot import open_snapshot
from unweight_codecs.errors import FormatError


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_sharded(tmp_path / "model")


def test_wrong_total_size_and_extra_tensors_are_fine(sharded: Path) -> None:
    write_index(sharded / INDEX, {"a": FIRST, "c": SECOND}, metadata={"total_size": 2.5})
    assert len(open_snapshot(sharded).models) == 2


def test_index_in_a_subfolder_names_shards_beside_it(tmp_path: Path) -> None:
    write_tiny(tmp_path / "unet" / "part" / FIRST, "a")
    write_index(tmp_path / "unet" / INDEX, {"a": f"part/{FIRST}"})
    assert paths(open_snapshot(tmp_path).models) == [f"unet/part/{FIRST}"]
    assert paths(open_snapshot(tmp_path / "unet" / INDEX).models) == [f"part/{FIRST}"]


@pytest.mark.parametrize("directly", [False, True])
@pytest.mark.parametrize(
    "shard",
    [
        "",
        ".",
        "..",
        f"../{FIRST}",
        f"sub/../../{FIRST}",
        f"/{FIRST}",
        f"//host/{FIRST}",
        f"..\\{FIRST}",
        f"sub\\{FIRST}",
        f"C:{FIRST}",
        f"c:/{FIRST}",
        f"{FIRST}\0",
    ],
)
def test_shard_name_that_leads_elsewhere(sharded: Path, shard: str, directly: bool) -> None:
    write_tiny(sharded.parent / FIRST, "a")
    write_index(sharded / INDEX, {"a": shard})
    with pytest.raises(FormatError, match=rf"{INDEX}: shard name .* is refused"):
        open_snapshot(sharded / INDEX if directly else sharded)


@pytest.mark.parametrize("directly", [False, True])
@pytest.mark.parametrize("shard", ["absent.safetensors", "sub", "x" * 300 + ".safetensors"])
def test_shard_that_does_not_exist(sharded: Path, shard: str, directly: bool) -> None:
    (sharded / "sub").mkdir()
    write_index(sharded / INDEX, {"a": shard})
    with pytest.raises(FormatError, match=f"shard '{shard[:50]}.* is missing"):
        open_snapshot(sharded / INDEX if directly else sharded)


@pytest.mark.parametrize("directly", [False, True])
@pytest.mark.parametrize("shard", ["config.json", f".{FIRST}", f".sub/{FIRST}"])
def test_shard_that_is_not_a_model(sharded: Path, shard: str, directly: bool) -> None:
    write_tiny(sharded / shard, "a")
    write_index(sharded / INDEX, {"a": shard})
    with pytest.raises(FormatError, match="is not a visible"):
        open_snapshot(sharded / INDEX if directly else sharded)


@pytest.mark.parametrize("directly", [False, True])
def test_tensor_that_is_not_in_its_shard(sharded: Path, directly: bool) -> None:
    write_index(sharded / INDEX, {"a": FIRST, "b": SECOND, "c": SECOND, "x": SECOND})
    with pytest.raises(FormatError, match=rf"lists tensor 'b' \(and 1 more\) in {SECOND}"):
        open_snapshot(sharded / INDEX if directly else sharded)


def test_shard_that_is_damaged_is_named(sharded: Path) -> None:
    (sharded / SECOND).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(FormatError, match=rf"{SECOND}: .*Git LFS pointer"):
        open_snapshot(sharded)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": null}',
        '{"weight_map": []}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": null}}',
        f'{{"weight_map": {{"a": "{FIRST}", "a": "{FIRST}"}}}}',
        '{"weight_map": {"\\ud800": "x"}}',
        '{"weight_map": NaN}',
        '{"weight_map": ' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_index_that_is_malformed(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    for path in (sharded, sharded / INDEX):
        with pytest.raises(FormatError, match=INDEX):
            open_snapshot(path)


def test_index_without_shards_has_no_model(sharded: Path) -> None:
    write_index(sharded / INDEX, {})
    with pytest.raises(FormatError, match="no model found"):
        open_snapshot(sharded / INDEX)


def test_index_that_is_too_large_is_not_read(sharded: Path) -> None:
    os.truncate(sharded / INDEX, MAX_INDEX_BYTES + 1)
    with pytest.raises(FormatError, match="too many for a shard index"):
        open_snapshot(sharded)
