"""Where the output may not go: refused before anything is written, and nothing is touched."""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.models import gaussian, small_model, write_model
from tests.support.users import ordinary_user, read_only
from unweight_cli.app import run

Capture = pytest.CaptureFixture[str]
Place = Callable[[Path, Path], Path]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return every name below a folder, with what is in the regular files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else None
        for path in sorted(folder.rglob("*"))
    }


def refused(arguments: list[str], capsys: Capture, code: int, words: str = "") -> None:
    """Run a command line that must fail with one line on stderr that has ``words``."""
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.err.startswith("unweight: error: ")
    assert shown.err.count("\n") == 1
    assert words in shown.err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "work" / "model.safetensors")


@pytest.fixture
def coded(model: Path, tmp_path: Path) -> Path:
    path = tmp_path / "work" / "coded.safetensors"
    assert run(["compress", str(model), "-o", str(path), "-q"]) == 0
    return path


def itself(source: Path, work: Path) -> Path:
    return source


def with_a_detour(source: Path, work: Path) -> Path:
    return work / ".." / work.name / source.name


def relative(source: Path, work: Path) -> Path:
    return Path(os.path.relpath(source))


def link_to_it(source: Path, work: Path) -> Path:
    (work / "link.safetensors").symlink_to(source)
    return work / "link.safetensors"


def link_to_a_link(source: Path, work: Path) -> Path:
    (work / "second.safetensors").symlink_to(link_to_it(source, work))
    return work / "second.safetensors"


def hard_link(source: Path, work: Path) -> Path:
    (work / "hard.safetensors").hardlink_to(source)
    return work / "hard.safetensors"


def through_a_linked_folder(source: Path, work: Path) -> Path:
    (work / "folder").symlink_to(work)
    return work / "folder" / source.name


SAME = [
    itself, with_a_detour, relative, link_to_it, link_to_a_link, hard_link, through_a_linked_folder
]  # fmt: skip


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["unforced", "forced"])
@pytest.mark.parametrize("place", SAME)
def test_the_input_of_compress(
    place: Place, force: list[str], model: Path, capsys: Capture
) -> None:
    target = place(model, model.parent)
    before = contents(model.parent)
    refused(["compress", str(model), "-o", str(target), *force], capsys, 2, "its own input")
    assert contents(model.parent) == before


@pytest.mark.parametrize("place", SAME)
def test_the_input_of_decompress(place: Place, coded: Path, capsys: Capture) -> None:
    target = place(coded, coded.parent)
    before = contents(coded.parent)
    refused(["decompress", str(coded), "-o", str(target), "-f"], capsys, 2, "its own input")
    assert contents(coded.parent) == before


def test_the_input_when_that_is_given_through_a_link(model: Path, capsys: Capture) -> None:
    link = link_to_it(model, model.parent)
    refused(["compress", str(link), "-o", str(model), "-f"], capsys, 2, "its own input")
    assert link.is_symlink()


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["unforced", "forced"])
@pytest.mark.parametrize("target", ["work", "work/inside", "work/deep", ".", "work/../work"])
def test_overlap_of_directories(
    target: str, force: list[str], model: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "work" / "deep").mkdir()
    before = contents(tmp_path)
    refused(
        ["compress", str(model.parent), "-o", str(tmp_path / target), *force],
        capsys, 2, "its own input",
    )  # fmt: skip
    assert contents(tmp_path) == before


def test_the_folder_of_a_file(model: Path, capsys: Capture) -> None:
    refused(["compress", str(model), "-o", str(model.parent), "-f"], capsys, 2, "its own input")
    assert model.exists()


def test_the_folder_that_holds_the_shards_of_an_index(tmp_path: Path, capsys: Capture) -> None:
    """Replacing it would remove the input."""
    write_model(tmp_path / "parts" / "one.safetensors", {"weight": gaussian("BF16", (64, 64), 1)})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"weight": "parts/one.safetensors"}}')
    before = contents(tmp_path)
    refused(
        ["compress", str(index), "-o", str(tmp_path / "parts"), "-f"], capsys, 2, "its own input"
    )
    assert contents(tmp_path) == before


def test_the_blobs_of_a_hub_cache(tmp_path: Path, capsys: Capture) -> None:
    """They lie outside the snapshot, but are its files."""
    blob = small_model(tmp_path / "blobs" / "0123")
    snapshot = tmp_path / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
    line = ["compress", str(snapshot), "-o", str(tmp_path / "blobs"), "-f"]
    refused(line, capsys, 2, "its own input")
    assert blob.exists()


def device(name: str) -> Place:
    def place(source: Path, work: Path) -> Path:
        if not Path("/dev", name).is_char_device():
            pytest.skip(f"no device {name} here")
        return Path("/dev", name)

    return place


def fifo(source: Path, work: Path) -> Path:
    os.mkfifo(work / "fifo")
    return work / "fifo"


def unix_socket(source: Path, work: Path) -> Path:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.join(short, "s"))  # the path of a socket is limited to about 100 bytes
        os.rename(os.path.join(short, "s"), work / "socket")
    return work / "socket"


def directory(source: Path, work: Path) -> Path:
    (work / "directory").mkdir()
    return work / "directory"


def link_to_a_device(source: Path, work: Path) -> Path:
    (work / "null").symlink_to("/dev/null")
    return work / "null"


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["unforced", "forced"])
@pytest.mark.parametrize(
    "place", [device("null"), device("full"), fifo, unix_socket, directory, link_to_a_device]
)
def test_something_else_than_a_file(
    place: Place, force: list[str], model: Path, coded: Path, capsys: Capture
) -> None:
    target = place(model, model.parent)
    before = contents(model.parent)
    words = "not a regular file"
    refused(["compress", str(model), "-o", str(target), *force], capsys, 2, words)
    refused(["decompress", str(coded), "-o", str(target), *force], capsys, 2, words)
    assert contents(model.parent) == before


def test_a_file_where_a_directory_goes(model: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "file"
    target.write_text("precious")
    refused(["compress", str(model.parent), "-o", str(target), "-f"], capsys, 2, "not a directory")
    assert target.read_text() == "precious"


def test_a_link_that_leads_nowhere(model: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "dangling"
    target.symlink_to("absent")
    refused(["compress", str(model), "-o", str(target), "-f"], capsys, 2, "leads nowhere")
    assert target.is_symlink()


def test_a_link_that_leads_in_a_circle(model: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "loop"
    target.symlink_to("loop")
    refused(["compress", str(model), "-o", str(target), "-f"], capsys, 2, "leads nowhere")
    refused(["compress", str(target)], capsys, 2, "loop")


@pytest.mark.parametrize("target", ["absent/out", "model.safetensors/out", "absent/../out"])
def test_a_folder_that_is_not_there(target: str, model: Path, capsys: Capture) -> None:
    line = ["compress", str(model), "-o", str(model.parent / target)]
    refused(line, capsys, 2, "no such directory")
    assert contents(model.parent).keys() == {"model.safetensors"}


def test_an_existing_file_is_kept(model: Path, coded: Path, capsys: Capture) -> None:
    before = contents(model.parent)
    refused(["compress", str(model), "-o", str(coded)], capsys, 2, "--force")
    refused(["decompress", str(coded), "-o", str(model)], capsys, 2, "--force")
    assert contents(model.parent) == before


def test_force_replaces_a_file(model: Path, coded: Path) -> None:
    original = model.read_bytes()
    model.write_bytes(b"of no use")
    assert run(["decompress", str(coded), "-o", str(model), "--force", "-q"]) == 0
    assert model.read_bytes() == original


def test_force_replaces_a_link_and_not_what_it_points_to(model: Path, tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_text("precious")
    link.symlink_to(other)
    assert run(["compress", str(model), "-o", str(link), "--force", "-q"]) == 0
    assert not link.is_symlink()
    assert other.read_text() == "precious"


def test_a_failure_with_force_keeps_the_old_file(
    model: Path, coded: Path, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "old.safetensors"
    target.write_text("precious")
    data = bytearray(coded.read_bytes())
    data[-100] ^= 4  # damage that shows only when most of the output is written
    coded.write_bytes(data)
    refused(["decompress", str(coded), "-o", str(target), "--force"], capsys, 4)
    assert contents(tmp_path).keys() == {
        "old.safetensors",
        "work",
        "work/coded.safetensors",
        "work/model.safetensors",
    }
    assert target.read_text() == "precious"


def test_a_failure_with_force_keeps_the_old_directory(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    packed = tmp_path / "work.unweight"
    assert run(["compress", str(model.parent), "-q"]) == 0
    shard = packed / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100] + bytes(100))
    before = contents(tmp_path)
    refused(["decompress", str(packed), "--force"], capsys, 4)
    assert contents(tmp_path) == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="unweight-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_folder(open_folder: Path, capsys: Capture) -> None:
    model = small_model(open_folder / "model.safetensors")
    before = contents(open_folder)
    with read_only(open_folder), ordinary_user():
        refused(["compress", str(model)], capsys, 6, str(open_folder))
    assert contents(open_folder) == before


def test_input_in_a_read_only_folder(open_folder: Path) -> None:
    source, results = open_folder / "source", open_folder / "results"
    results.mkdir()
    small_model(source / "model.safetensors")
    (source / "config.json").write_text("{}")
    before = contents(source)
    packed, restored = str(results / "packed"), str(results / "restored")
    with read_only(source), ordinary_user(results):
        assert run(["compress", str(source), "-o", packed, "-q"]) == 0
        assert run(["verify", packed, "--against", str(source), "-q"]) == 0
        assert run(["decompress", packed, "-o", restored, "-q"]) == 0
    assert contents(source) == before
    assert contents(Path(restored)) == before


def test_a_file_that_may_not_be_read(open_folder: Path, capsys: Capture) -> None:
    model = small_model(open_folder / "model.safetensors")
    coded = open_folder / "coded"
    assert run(["compress", str(model), "-o", str(coded), "-q"]) == 0
    closed = open_folder / "closed"
    closed.write_text("")
    for path in (model, closed):
        path.chmod(0)
    words = "ermission denied"
    with ordinary_user(open_folder, coded):
        refused(["compress", str(model)], capsys, 6, words)
        refused(["compress", str(open_folder)], capsys, 6, words)
        refused(["inspect", "header", str(model)], capsys, 6, words)
        refused(["verify", str(coded), "--against", str(model)], capsys, 6, words)
        refused(["compress", str(coded), "--recipe", str(closed)], capsys, 6, words)
        refused(["decompress", str(coded), "-o", str(closed)], capsys, 2, "--force")
        # Replacing a file asks nothing of the file itself.
        assert run(["decompress", str(coded), "-o", str(closed), "--force", "-q"]) == 0


def test_a_folder_that_may_not_be_entered(open_folder: Path, capsys: Capture) -> None:
    model = small_model(open_folder / "closed" / "model.safetensors")
    target = open_folder / "free" / "out"
    target.parent.mkdir()
    other = small_model(target.parent / "model.safetensors")
    model.parent.chmod(0)
    with ordinary_user(target.parent):
        refused(["compress", str(model), "-o", str(target)], capsys, 6, "ermission denied")
        refused(["compress", str(other), "-o", str(model)], capsys, 6, "ermission denied")
    model.parent.chmod(0o755)


def test_permissions_of_the_output_are_those_of_any_new_file(model: Path, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        assert run(["compress", str(model.parent), "-q"]) == 0
    finally:
        os.umask(before)
    packed = tmp_path / "work.unweight"
    assert packed.stat().st_mode & 0o777 == 0o750
    assert (packed / "model.safetensors").stat().st_mode & 0o777 == 0o640
