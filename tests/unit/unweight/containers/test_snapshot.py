"""Model directories: what is a model, what is carried along, and what is refused."""

import os
import socket
from pathlib import Path, PurePosixPath

import pytest

from tests.support.gguf_files import file_of
from tests.support.snapshots import FIRST, INDEX, SECOND, paths, write_sharded, write_tiny
from unweight.containers.directories import snapshot as snapshots
from unweight.containers.directories.boundary import Boundary
from unweight.containers.directories.snapshot import Snapshot, open_snapshot
from unweight_codecs.errors import FormatError, ResourceError


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_sharded(tmp_path / "model")


# --- what a directory contains --------------------------------------------------------------


def test_directory_has_models_and_carried_files_in_byte_order(sharded: Path) -> None:
    snapshot = open_snapshot(sharded)
    assert snapshot.root == sharded
    assert paths(snapshot.models) == [FIRST, SECOND]
    assert paths(snapshot.carried) == ["config.json", INDEX]


def test_index_path_stands_for_its_shards_and_itself(sharded: Path) -> None:
    write_tiny(sharded / "other.safetensors", "x")
    snapshot = open_snapshot(sharded / INDEX)
    models = PurePosixPath(FIRST), PurePosixPath(SECOND)
    assert snapshot == Snapshot(sharded, models, (PurePosixPath(INDEX),), Boundary(sharded))


@pytest.mark.parametrize("name", ["", INDEX], ids=["directory", "index"])
def test_the_root_is_followed_once(
    sharded: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(Boundary):
        def __init__(self, root: Path) -> None:
            made.append(root)
            super().__init__(root)

    monkeypatch.setattr(snapshots, "Boundary", Counted)
    snapshot = open_snapshot(sharded / name)
    for file in (*snapshot.models, *snapshot.carried):
        snapshot.resolve(file)
    assert made == [sharded]


def test_resolved_paths_open_the_files(sharded: Path) -> None:
    snapshot = open_snapshot(sharded)
    assert snapshot.resolve(snapshot.models[0]).read_bytes() == (sharded / FIRST).read_bytes()


def test_subfolders_are_part_of_the_model(tmp_path: Path) -> None:
    for name in ("vae/m.safetensors", "unet/m.safetensors", "Unet/m.safetensors"):
        write_tiny(tmp_path / name, "x")
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
    write_tiny(tmp_path / "m.SafeTensors", "x")
    (tmp_path / "m.GGUF").write_bytes(file_of())
    assert paths(open_snapshot(tmp_path).models) == ["m.GGUF", "m.SafeTensors"]


def test_hidden_and_leftover_files_are_carried_unread(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.safetensors", "x")
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
    write_tiny(tmp_path / "m.safetensors", "x")
    (tmp_path / ".git" / "lfs").mkdir(parents=True)
    (tmp_path / ".git" / "lfs" / "object").write_bytes(b"the model once more")
    (tmp_path / ".git" / "outside").symlink_to(tmp_path.parent)
    (tmp_path / "sub" / ".github").mkdir(parents=True)
    (tmp_path / "sub" / ".git").write_text("gitdir: ../.git/modules/sub")
    (tmp_path / "sub" / ".github" / "notes").write_text("")
    assert paths(open_snapshot(tmp_path).carried) == ["sub/.github/notes"]


def test_name_that_is_not_unicode_is_carried(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.safetensors", "x")
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
        open_snapshot(write_tiny(tmp_path / "m.safetensors", "x"))


def test_a_gguf_model_lacks_a_part(tmp_path: Path) -> None:
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(file_of())
    with pytest.raises(FormatError, match=r"m-00002-of-00002\.gguf: is missing"):
        open_snapshot(tmp_path)


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
