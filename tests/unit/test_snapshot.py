"""Model directories: what is a model, what is carried along, and what is refused."""

import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

from tests.support.gguf_files import file_of
from unweight_codecs.containers import snapshot as snapshot_module
from unweight_codecs.containers.safetensors import header_bytes
from unweight_codecs.containers.shard_index import MAX_INDEX_BYTES
from unweight_codecs.containers.snapshot import Snapshot, open_snapshot
from unweight_codecs.errors import FormatError, ResourceError

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def write_model(path: Path, *names: str) -> Path:
    """Write a model with one-byte tensors of these names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        header_bytes([(name, "U8", (1,), 1) for name in names], {}) + bytes(len(names))
    )
    return path


def write_index(path: Path, weight_map: object, **other: object) -> Path:
    path.write_text(json.dumps({"weight_map": weight_map, **other}), encoding="utf-8")
    return path


def paths(files: Iterable[PurePosixPath]) -> list[str]:
    return [str(file) for file in files]


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A directory with two shards, their index and a configuration file."""
    root = tmp_path / "model"
    write_model(root / FIRST, "a", "b")
    write_model(root / SECOND, "c")
    write_index(root / INDEX, {"a": FIRST, "b": FIRST, "c": SECOND})
    (root / "config.json").write_text("{}")
    return root


# --- what a directory contains --------------------------------------------------------------


def test_directory_has_models_and_carried_files_in_byte_order(sharded: Path) -> None:
    snapshot = open_snapshot(sharded)
    assert snapshot.root == sharded
    assert paths(snapshot.models) == [FIRST, SECOND]
    assert paths(snapshot.carried) == ["config.json", INDEX]


def test_index_path_stands_for_its_shards_and_itself(sharded: Path) -> None:
    write_model(sharded / "other.safetensors", "x")
    snapshot = open_snapshot(sharded / INDEX)
    assert snapshot == Snapshot(
        sharded, (PurePosixPath(FIRST), PurePosixPath(SECOND)), (PurePosixPath(INDEX),)
    )


def test_resolved_paths_open_the_files(sharded: Path) -> None:
    snapshot = open_snapshot(sharded)
    assert snapshot.resolve(snapshot.models[0]).read_bytes() == (sharded / FIRST).read_bytes()


def test_subfolders_are_part_of_the_model(tmp_path: Path) -> None:
    for name in ("vae/m.safetensors", "unet/m.safetensors", "Unet/m.safetensors"):
        write_model(tmp_path / name, "x")
    (tmp_path / "unet" / "config.json").write_text("{}")
    (tmp_path / "model_index.json").write_text("{}")
    snapshot = open_snapshot(tmp_path)
    assert paths(snapshot.models) == [
        "Unet/m.safetensors",
        "unet/m.safetensors",
        "vae/m.safetensors",
    ]
    assert paths(snapshot.carried) == ["model_index.json", "unet/config.json"]


def test_capitals_of_the_suffix_do_not_matter(tmp_path: Path) -> None:
    write_model(tmp_path / "m.SafeTensors", "x")
    (tmp_path / "m.GGUF").write_bytes(file_of())
    assert paths(open_snapshot(tmp_path).models) == ["m.GGUF", "m.SafeTensors"]


def test_hidden_and_leftover_files_are_carried_unread(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", "x")
    leftovers = [
        ".cache/m.safetensors",
        ".gitattributes",
        ".m.gguf",
        ".m.safetensors.index.json",
        ".tmp_m.safetensors",
        "m.gguf.part",
        "m.safetensors.incomplete",
        "pytorch_model.bin",
        "sub/.hidden/m.safetensors",
    ]
    for name in leftovers:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"not a model")
    snapshot = open_snapshot(tmp_path)
    assert paths(snapshot.models) == ["m.safetensors"]
    assert paths(snapshot.carried) == leftovers


def test_the_history_of_a_clone_is_left_out(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", "x")
    (tmp_path / ".git" / "lfs").mkdir(parents=True)
    (tmp_path / ".git" / "lfs" / "object").write_bytes(b"the model once more")
    (tmp_path / ".git" / "outside").symlink_to(tmp_path.parent)
    (tmp_path / "sub" / ".github").mkdir(parents=True)
    (tmp_path / "sub" / ".git").write_text("gitdir: ../.git/modules/sub")
    (tmp_path / "sub" / ".github" / "notes").write_text("")
    assert paths(open_snapshot(tmp_path).carried) == ["sub/.github/notes"]


def test_name_that_is_not_unicode_is_carried(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", "x")
    name = os.fsdecode(b"caf\xe9.txt")
    try:
        (tmp_path / name).write_text("x")
    except OSError:
        pytest.skip("the file system takes Unicode names only")
    snapshot = open_snapshot(tmp_path)
    assert paths(snapshot.carried) == [name]
    assert snapshot.resolve(snapshot.carried[0]).read_text() == "x"


def test_directory_may_be_given_through_a_link(sharded: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(sharded)
    assert open_snapshot(link).models == open_snapshot(sharded).models


def test_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no model found .*\*\.safetensors and \*\.gguf"):
        open_snapshot(tmp_path)


def test_directory_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".m.safetensors").write_text("")
    with pytest.raises(FormatError, match="no model found"):
        open_snapshot(tmp_path)


def test_missing_path(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="cannot be read: No such file"):
        open_snapshot(tmp_path / INDEX)


def test_other_file_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="neither a directory nor"):
        open_snapshot(write_model(tmp_path / "m.safetensors", "x"))


def test_a_gguf_model_lacks_a_part(tmp_path: Path) -> None:
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(file_of())
    with pytest.raises(FormatError, match=r"m-00002-of-00002\.gguf: is missing"):
        open_snapshot(tmp_path)


# --- the index of a sharded model -----------------------------------------------------------


def test_wrong_total_size_and_extra_tensors_are_fine(sharded: Path) -> None:
    write_index(sharded / INDEX, {"a": FIRST, "c": SECOND}, metadata={"total_size": 2.5})
    assert len(open_snapshot(sharded).models) == 2


def test_index_in_a_subfolder_names_shards_beside_it(tmp_path: Path) -> None:
    write_model(tmp_path / "unet" / "part" / FIRST, "a")
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
    write_model(sharded.parent / FIRST, "a")
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
    write_model(sharded / shard, "a")
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


# --- links ----------------------------------------------------------------------------------


def test_links_inside_the_directory_are_followed(sharded: Path) -> None:
    (sharded / "copy.safetensors").symlink_to(FIRST)
    (sharded / "alias").symlink_to(sharded / "sub")
    write_model(sharded / "sub" / "m.safetensors", "x")
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
    outside = write_model(sharded.parent / "outside.safetensors", "x")
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
    write_model(sibling / "m.safetensors", "x")
    (sharded / "m.safetensors").symlink_to(sibling / "m.safetensors")
    with pytest.raises(FormatError, match="outside"):
        open_snapshot(sharded)


def test_shard_link_that_leads_outside_an_index(sharded: Path) -> None:
    outside = write_model(sharded.parent / "outside.safetensors", "c")
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
    (sharded / "config.json").symlink_to(write_model(sharded.parent / "outside", "x"))
    with pytest.raises(FormatError, match="links to"):
        snapshot.resolve(PurePosixPath("config.json"))


def test_resolve_does_not_leave_the_directory(sharded: Path) -> None:
    write_model(sharded.parent / "outside", "x")
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
    write_model(repo / "blobs" / "f1", "a", "b")
    write_model(repo / "blobs" / "f2", "c")
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
    blob = write_model(cached.parents[2] / "models--org--other" / "blobs" / "f1", "x")
    (cached / "m.safetensors").symlink_to(blob)
    with pytest.raises(FormatError, match=r"m\.safetensors: links to"):
        open_snapshot(cached)


def test_hub_cache_link_to_another_revision(cached: Path) -> None:
    other = write_model(cached.with_name("4567cdef") / "m.safetensors", "x")
    (cached / "m.safetensors").symlink_to(other)
    with pytest.raises(FormatError, match="links to"):
        open_snapshot(cached)


def test_hub_cache_blob_that_is_a_link_outside(cached: Path) -> None:
    outside = write_model(cached.parents[2] / "outside", "x")
    (cached.parents[1] / "blobs" / "f4").symlink_to(outside)
    (cached / "m.safetensors").symlink_to("../../blobs/f4")
    with pytest.raises(FormatError, match=r"links to .*outside"):
        open_snapshot(cached)


def test_blob_folder_without_a_cache_layout(tmp_path: Path) -> None:
    write_model(tmp_path / "repo" / "blobs" / "f1", "x")
    revision = tmp_path / "repo" / "revisions" / "0123abcd"
    revision.mkdir(parents=True)
    (revision / "m.safetensors").symlink_to("../../blobs/f1")
    with pytest.raises(FormatError, match="links to"):
        open_snapshot(revision)


# --- things that are not files --------------------------------------------------------------


@pytest.mark.parametrize("name", ["pipe", "m.safetensors", ".hidden"])
def test_fifo_is_refused(sharded: Path, name: str) -> None:
    os.mkfifo(sharded / name)
    with pytest.raises(FormatError, match=f"{name}: not a regular file"):
        open_snapshot(sharded)


def test_socket_is_refused(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sharded)  # socket addresses are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(FormatError, match="socket: not a regular file"):
            open_snapshot(sharded)


def test_device_outside_is_refused(sharded: Path) -> None:
    (sharded / "zero.safetensors").symlink_to(os.devnull)
    with pytest.raises(FormatError, match="links to"):
        open_snapshot(sharded)


def test_fifo_as_shard_of_an_index_is_refused(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    os.mkfifo(sharded / SECOND)
    with pytest.raises(FormatError, match="is missing"):
        open_snapshot(sharded / INDEX)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["config.json", FIRST, "sub"])
def test_unreadable_file_or_folder(sharded: Path, name: str) -> None:
    (sharded / "sub").mkdir()
    (sharded / name).chmod(0)
    try:
        with pytest.raises(ResourceError, match=f"{name}: cannot be read"):
            open_snapshot(sharded)
    finally:
        (sharded / name).chmod(0o700)
