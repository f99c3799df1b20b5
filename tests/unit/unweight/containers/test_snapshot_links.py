"""Links in model directories: followed inside, refused where they lead outside."""

from pathlib import Path, PurePosixPath

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
from unweight.containers.directories import snapshot as snapshot_module
from unweight.containers.directories.snapshot import open_snapshot
from unweight_codecs.errors import FormatError


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_sharded(tmp_path / "model")


# --- links ----------------------------------------------------------------------------------


def test_links_inside_the_directory_are_followed(sharded: Path) -> None:
    (sharded / "copy.safetensors").symlink_to(FIRST)
    (sharded / "alias").symlink_to(sharded / "sub")
    write_tiny(sharded / "sub" / "m.safetensors", "x")
    snapshot = open_snapshot(sharded)
    assert paths(snapshot.models) == [
        "alias/m.safetensors",
        "copy.safetensors",
        FIRST,
        SECOND,
        "sub/m.safetensors",
    ]


@pytest.mark.parametrize("name", ["m.safetensors", "notes.txt", ".hidden"])
def test_file_link_that_leads_outside(sharded: Path, name: str) -> None:
    outside = write_tiny(sharded.parent / "outside.safetensors", "x")
    (sharded / name).symlink_to(outside)
    with pytest.raises(FormatError, match=rf"{name}: links to .*outside\.safetensors, outside"):
        open_snapshot(sharded)


def test_directory_link_that_leads_outside(sharded: Path) -> None:
    (sharded.parent / "elsewhere").mkdir()
    (sharded / "sub").symlink_to(sharded.parent / "elsewhere")
    with pytest.raises(FormatError, match="sub: links to"):
        open_snapshot(sharded)


def test_link_to_a_sibling_with_the_same_prefix_leads_outside(sharded: Path) -> None:
    sibling = sharded.with_name(sharded.name + "-2")
    write_tiny(sibling / "m.safetensors", "x")
    (sharded / "m.safetensors").symlink_to(sibling / "m.safetensors")
    with pytest.raises(FormatError, match="outside"):
        open_snapshot(sharded)


def test_shard_link_that_leads_outside_an_index(sharded: Path) -> None:
    outside = write_tiny(sharded.parent / "outside.safetensors", "c")
    (sharded / SECOND).unlink()
    (sharded / SECOND).symlink_to(outside)
    with pytest.raises(FormatError, match=rf"{SECOND}: links to"):
        open_snapshot(sharded / INDEX)


def test_index_link_that_leads_outside(sharded: Path) -> None:
    outside = sharded.parent / INDEX
    outside.write_text("must not be read, so its faults must not show")
    (sharded / INDEX).unlink()
    (sharded / INDEX).symlink_to(outside)
    with pytest.raises(FormatError, match=rf"{INDEX}: links to"):
        open_snapshot(sharded / INDEX)


def test_link_made_after_listing_is_refused_on_resolving(sharded: Path) -> None:
    snapshot = open_snapshot(sharded)
    (sharded / "config.json").unlink()
    (sharded / "config.json").symlink_to(write_tiny(sharded.parent / "outside", "x"))
    with pytest.raises(FormatError, match="links to"):
        snapshot.resolve(PurePosixPath("config.json"))


def test_resolve_does_not_leave_the_directory(sharded: Path) -> None:
    write_tiny(sharded.parent / "outside", "x")
    with pytest.raises(FormatError, match="outside"):
        open_snapshot(sharded).resolve(PurePosixPath("../outside"))


@pytest.mark.parametrize("target", ["absent", "loop"])
def test_link_that_leads_nowhere(sharded: Path, target: str) -> None:
    (sharded / "loop").symlink_to(target)
    with pytest.raises(FormatError, match="loop: cannot be followed"):
        open_snapshot(sharded)


@pytest.mark.parametrize("target", [".", "..", "../sub"])
def test_directory_link_that_leads_in_a_circle(sharded: Path, target: str) -> None:
    (sharded / "sub").mkdir()
    (sharded / "sub" / "circle").symlink_to(target)
    with pytest.raises(FormatError, match="circle: a link that leads in a circle"):
        open_snapshot(sharded)


def test_links_that_multiply_the_tree_are_bounded(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "MAX_ENTRIES", 1000)
    for level in range(12):  # level n holds two links to level n + 1: 2^12 paths
        folder = sharded / f"{level}"
        folder.mkdir()
        for name in ("left", "right"):
            (folder / name).symlink_to(sharded / f"{level + 1}")
    (sharded / "12").mkdir()
    with pytest.raises(FormatError, match="more than 1000 files"):
        open_snapshot(sharded)


# --- the hub's cache ------------------------------------------------------------------------


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A revision in the layout of the Hugging Face hub cache, whose files are links to blobs."""
    repo = tmp_path / "models--org--name"
    revision = repo / "snapshots" / "0123abcd"
    (revision / "unet").mkdir(parents=True)
    write_tiny(repo / "blobs" / "f1", "a", "b")
    write_tiny(repo / "blobs" / "f2", "c")
    write_index(repo / "blobs" / "f3", {"a": FIRST, "c": SECOND})
    for name, blob in ((FIRST, "f1"), (SECOND, "f2"), (INDEX, "f3")):
        (revision / name).symlink_to(f"../../blobs/{blob}")
    (revision / "unet" / "m.safetensors").symlink_to("../../../blobs/f1")
    return revision


def test_hub_cache_links_to_its_own_blobs(cached: Path) -> None:
    snapshot = open_snapshot(cached)
    assert paths(snapshot.models) == [FIRST, SECOND, "unet/m.safetensors"]
    assert paths(snapshot.carried) == [INDEX]
    assert snapshot.resolve(snapshot.models[1]) == cached / SECOND
    assert paths(open_snapshot(cached / INDEX).models) == [FIRST, SECOND]
    assert paths(open_snapshot(cached / "unet").models) == ["m.safetensors"]


def test_hub_cache_link_to_another_repository(cached: Path) -> None:
    blob = write_tiny(cached.parents[2] / "models--org--other" / "blobs" / "f1", "x")
    (cached / "m.safetensors").symlink_to(blob)
    with pytest.raises(FormatError, match=r"m\.safetensors: links to"):
        open_snapshot(cached)


def test_hub_cache_link_to_another_revision(cached: Path) -> None:
    other = write_tiny(cached.with_name("4567cdef") / "m.safetensors", "x")
    (cached / "m.safetensors").symlink_to(other)
    with pytest.raises(FormatError, match="links to"):
        open_snapshot(cached)


def test_hub_cache_blob_that_is_a_link_outside(cached: Path) -> None:
    outside = write_tiny(cached.parents[2] / "outside", "x")
    (cached.parents[1] / "blobs" / "f4").symlink_to(outside)
    (cached / "m.safetensors").symlink_to("../../blobs/f4")
    with pytest.raises(FormatError, match=r"links to .*outside"):
        open_snapshot(cached)


def test_blob_folder_without_a_cache_layout(tmp_path: Path) -> None:
    write_tiny(tmp_path / "repo" / "blobs" / "f1", "x")
    revision = tmp_path / "repo" / "revisions" / "0123abcd"
    revision.mkdir(parents=True)
    (revision / "m.safetensors").symlink_to("../../blobs/f1")
    with pytest.raises(FormatError, match="links to"):
        open_snapshot(revision)
