"""Model directories: what is coded, what is carried, and what must be noticed."""

import hashlib
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gguf_files import Q4_1, NewTensor, blocks, key, model_of, small_gguf
from tests.support.models import gaussian, small_model, write_model
from unweight.containers.gguf.values import ValueType
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.report import CheckKind, OperationReport
from unweight.operations.verify import verify
from unweight_cli.render.checks import checked
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError, UsageError

QUIET = NoProgress()
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"
CARRIED = {
    "config.json": b'{"hidden_size": 64}',
    "empty.txt": b"",
    ".gitattributes": b"*.safetensors filter=lfs\n",
    ".cache/huggingface/download/model.safetensors.metadata": b"\xff\x00",
    ".cache/half.safetensors": b"not a model",
    "original/params.json": b"{}",
    "original/deep/er/notes\n.md": b"# Notes\n",
    "tokenizer.model": bytes(range(256)) * 40,
}


def packed(source: Path, target: Path | None = None, *, force: bool = False) -> OperationReport:
    return compress(source, target, CompressOptions(force=force), QUIET)


def unpacked(source: Path, target: Path | None = None, *, force: bool = False) -> OperationReport:
    return decompress(source, target, threads=0, force=force, progress=QUIET)


def compared(source: Path, against: Path) -> OperationReport:
    return verify(source, against, threads=0, progress=QUIET)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Return a sharded model with files of all kinds around it."""
    folder = tmp_path / "model"
    for number, name in enumerate(SHARDS):
        tensors = {f"layer.{number}.weight": gaussian("BF16", (64, 128), number)}
        write_model(folder / name, tensors, {"format": "pt"})
    weights = ", ".join(f'"layer.{n}.weight": "{name}"' for n, name in enumerate(SHARDS))
    (folder / INDEX).write_text(f'{{"metadata": {{}}, "weight_map": {{{weights}}}}}')
    small_model(folder / "unet" / "Diffusion.SafeTensors")
    for name, data in CARRIED.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def coded(sharded: Path) -> Path:
    packed(sharded)
    return sharded.with_name("model.unweight")


def test_round_trip(sharded: Path) -> None:
    before = contents(sharded)
    report = packed(sharded)
    coded = Path(report.target)
    assert (coded.name, report.carried_files) == ("model.unweight", len(CARRIED) + 1)
    after = contents(coded)
    assert after.keys() == before.keys()
    models = {*SHARDS, "unet/Diffusion.SafeTensors"}
    assert {name for name in before if before[name] != after[name]} == models
    assert report.source_bytes == sum(map(len, before.values()))
    assert report.target_bytes == sum(map(len, after.values())) < report.source_bytes
    assert {Path(file.target) for file in report.files} == {coded / name for name in models}
    assert compared(coded, sharded).carried_files == len(CARRIED) + 1
    shutil.rmtree(sharded)
    assert unpacked(coded).target_bytes == sum(map(len, before.values()))
    assert contents(sharded) == before


def test_an_index_stands_for_its_shards(sharded: Path) -> None:
    report = packed(sharded / INDEX)
    coded = Path(report.target)
    assert coded == sharded / "model.unweight"
    assert contents(coded).keys() == {*SHARDS, INDEX}
    unpacked(coded / INDEX, sharded.with_name("restored"))
    restored = contents(sharded.with_name("restored"))
    assert restored == {name: contents(sharded)[name] for name in (*SHARDS, INDEX)}


def test_names_by_default_of_an_index(sharded: Path) -> None:
    coded = Path(packed(sharded / INDEX).target)
    assert Path(unpacked(coded / INDEX).target) == coded / "model.restored"
    marked = coded / "model.unweight.safetensors.index.json"
    (coded / INDEX).rename(marked)
    assert Path(unpacked(marked).target) == coded / "model"


def test_an_index_is_compared_with_an_index(sharded: Path, coded: Path) -> None:
    other = sharded / "other.safetensors.index.json"
    shutil.copyfile(sharded / INDEX, other)
    (sharded / "config.json").write_text("no part of it")
    for original in (sharded / INDEX, other):
        assert compared(coded / INDEX, original).carried_files == 1
    other.write_text(other.read_text().replace("{}", "{ }"))
    with pytest.raises(IntegrityError, match=other.name):
        compared(coded / INDEX, other)
    with pytest.raises(UsageError, match="stands for its shards only"):
        compared(coded, sharded / INDEX)
    with pytest.raises(UsageError, match="cannot be compared"):
        compared(coded / SHARDS[0], sharded / INDEX)
    change(sharded / SHARDS[1])
    with pytest.raises(IntegrityError, match=re.escape(SHARDS[1])):
        compared(coded / INDEX, sharded / INDEX)


def test_reports_say_what_no_digest_covers(sharded: Path, coded: Path, tmp_path: Path) -> None:
    shutil.copyfile(sharded / SHARDS[0], coded / SHARDS[0])
    others = len(CARRIED) + 2  # the index and the shard that is not compressed
    alone = verify(coded, None, threads=0, progress=QUIET)
    proved = "SHA-256 of the originals: verified"
    assert checked(alone) == f"{proved}; {others} other files not checked"
    restored = unpacked(coded, tmp_path / "restored")
    assert checked(restored) == f"{proved}; {others} other files copied, not checked"
    both = compared(coded, sharded)
    kinds = [report.checked for report in (alone, restored, both)]
    assert kinds == [CheckKind.DIGESTS, CheckKind.DIGESTS, CheckKind.ORIGINAL]
    assert checked(both) == "bit-exact against the original: verified"
    for report in (alone, both):
        assert (report.carried_files, report.carried_bytes) == (others, restored.carried_bytes)
        assert report.source_bytes == restored.source_bytes
    (packed_shard,) = (file.source for file in both.files if file.source.endswith(SHARDS[1]))
    single = verify(Path(packed_shard), None, threads=0, progress=QUIET)
    assert checked(single) == "SHA-256 of the original: verified"


def test_shards_in_the_output_are_those_of_single_files(sharded: Path, coded: Path) -> None:
    for name in SHARDS:
        alone = sharded.with_name(name)
        packed(sharded / name, alone)
        assert alone.read_bytes() == (coded / name).read_bytes()


def test_a_link_inside_becomes_a_file(sharded: Path, tmp_path: Path) -> None:
    (sharded / "alias.json").symlink_to("config.json")
    (sharded / "again").symlink_to("unet", target_is_directory=True)
    before = contents(sharded)
    coded = Path(packed(sharded).target)
    assert not any(path.is_symlink() for path in coded.rglob("*"))
    unpacked(coded, tmp_path / "restored")
    restored = contents(tmp_path / "restored")
    assert restored["alias.json"] == before["config.json"]
    assert restored["again/Diffusion.SafeTensors"] == before["unet/Diffusion.SafeTensors"]


def test_a_hub_cache(sharded: Path, tmp_path: Path) -> None:
    """Snapshots are links to blobs named by digest; the result is an ordinary directory."""
    before = contents(sharded)
    blobs, snapshot = tmp_path / "repo" / "blobs", tmp_path / "repo" / "snapshots" / "rev"
    blobs.mkdir(parents=True)
    for name, data in before.items():
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(os.path.relpath(blobs / digest, (snapshot / name).parent))
    blobs_before = contents(blobs)
    coded = tmp_path / "coded"
    packed(snapshot, coded)
    compared(coded, snapshot)
    unpacked(coded, tmp_path / "restored")
    assert contents(tmp_path / "restored") == before
    assert contents(blobs) == blobs_before
    assert not any(path.is_symlink() for path in (tmp_path / "restored").rglob("*"))


def test_a_link_outside_is_refused(sharded: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (sharded / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(FormatError, match="outside"):
        packed(sharded)
    assert not sharded.with_name("model.unweight").exists()


def test_a_plain_model_beside_compressed_ones_is_restored_as_it_is(
    sharded: Path, coded: Path, tmp_path: Path
) -> None:
    shutil.copyfile(sharded / SHARDS[0], coded / SHARDS[0])
    compared(coded, sharded)
    unpacked(coded, tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(sharded)


def test_force_replaces_a_directory_as_a_whole(sharded: Path, coded: Path) -> None:
    before = contents(coded)
    (coded / "config.json").unlink()
    (coded / SHARDS[0]).write_bytes(b"damaged")
    with pytest.raises(UsageError, match="force=True replaces it"):
        packed(sharded)
    assert (coded / SHARDS[0]).read_bytes() == b"damaged"
    packed(sharded, force=True)
    assert contents(coded) == before
    assert {entry.name for entry in sharded.parent.iterdir()} == {"model", "model.unweight"}


def test_a_missing_shard(sharded: Path, coded: Path, tmp_path: Path) -> None:
    for folder, work in ((sharded, packed), (coded, unpacked)):
        (folder / SHARDS[1]).unlink()
        with pytest.raises(FormatError, match=f"shard '{SHARDS[1]}' is missing"):
            work(folder, tmp_path / "out")
    assert {entry.name for entry in tmp_path.iterdir()} == {"model", "model.unweight"}


def test_a_damaged_shard_leaves_no_other_shard_behind(coded: Path, tmp_path: Path) -> None:
    data = bytearray((coded / SHARDS[1]).read_bytes())
    data[-1000] ^= 1
    (coded / SHARDS[1]).write_bytes(data)
    with pytest.raises(IntegrityError, match=re.escape(SHARDS[1])):
        unpacked(coded, tmp_path / "out")
    assert {entry.name for entry in tmp_path.iterdir()} == {"model", "model.unweight"}


def test_shards_exchanged(coded: Path, tmp_path: Path) -> None:
    first, second = (coded / name for name in SHARDS)
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    with pytest.raises(FormatError, match="does not contain it"):
        unpacked(coded, tmp_path / "out")


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def surplus(path: Path) -> None:
    path.with_name("surplus").write_text("")


DIFFERENCES = [
    ("a changed carried file", "original/params.json", change),
    ("a shortened carried file", "tokenizer.model", shorten),
    ("a missing carried file", "config.json", Path.unlink),
    ("a missing hidden file", ".gitattributes", Path.unlink),
    ("a surplus file", "original/params.json", surplus),
    ("a surplus hidden file", ".cache/half.safetensors", surplus),
]


@pytest.mark.parametrize("side", ["original", "coded"])
@pytest.mark.parametrize(
    ("name", "edit"), [row[1:] for row in DIFFERENCES], ids=[row[0] for row in DIFFERENCES]
)
def test_comparing_notices(
    name: str, edit: Callable[[Path], None], side: str, sharded: Path, coded: Path
) -> None:
    edit((sharded if side == "original" else coded) / name)
    with pytest.raises(IntegrityError) as caught:
        compared(coded, sharded)
    assert Path(name).name in str(caught.value) or "surplus" in str(caught.value)
    verify(coded, None, threads=0, progress=QUIET)


@pytest.mark.parametrize("name", [*SHARDS, "unet/Diffusion.SafeTensors"])
@pytest.mark.parametrize("edit", [change, shorten, Path.unlink])
def test_comparing_notices_another_model(
    name: str, edit: Callable[[Path], None], sharded: Path, coded: Path
) -> None:
    edit(sharded / name)
    with pytest.raises(IntegrityError, match=re.escape(Path(name).name)):
        compared(coded, sharded)


def test_comparing_notices_a_surplus_model(sharded: Path, coded: Path) -> None:
    shutil.copyfile(sharded / SHARDS[0], sharded / "third.safetensors")
    with pytest.raises(IntegrityError, match=r"third\.safetensors"):
        compared(coded, sharded)


def test_comparing_notices_another_letter_of_a_name(sharded: Path, coded: Path) -> None:
    (sharded / "config.json").rename(sharded / "Config.json")
    with pytest.raises(UnweightError, match=r"onfig\.json"):
        compared(coded, sharded)


@pytest.mark.parametrize("swap", [False, True])
def test_a_file_is_not_compared_with_a_directory(swap: bool, sharded: Path, coded: Path) -> None:
    pair = (coded / SHARDS[0], sharded) if swap else (coded, sharded / SHARDS[0])
    with pytest.raises(UsageError, match="cannot be compared"):
        compared(*pair)


def test_a_leftover_of_a_killed_run_is_no_model(sharded: Path) -> None:
    leftover = sharded / ".model.unweight.safetensors.unweight-tmp-abcd1234"
    leftover.write_bytes(b"half a file")
    folder = sharded / ".unet.unweight-tmp-abcd1234"
    small_model(folder / "model.safetensors")
    (folder / "model.safetensors").write_bytes(b"half a file")
    report = packed(sharded)
    assert {Path(file.source).name for file in report.files} == {*SHARDS, "Diffusion.SafeTensors"}
    assert not any(".unweight-tmp-" in name for name in contents(Path(report.target)))
    compared(Path(report.target), sharded)


def test_the_history_of_a_clone_is_not_carried(sharded: Path, tmp_path: Path) -> None:
    before = contents(sharded)
    (sharded / ".git" / "lfs").mkdir(parents=True)
    shutil.copyfile(sharded / SHARDS[0], sharded / ".git" / "lfs" / "object")
    coded = Path(packed(sharded).target)
    assert contents(coded).keys() == before.keys()
    compared(coded, sharded)
    unpacked(coded, tmp_path / "restored")
    assert contents(tmp_path / "restored") == before


def test_a_compressed_model_among_others_is_to_be_moved(sharded: Path) -> None:
    packed(sharded / SHARDS[0])
    with pytest.raises(FormatError, match=r"already compressed .*move or remove it"):
        packed(sharded)


def test_gguf_models_of_one_and_of_several_files(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for number in range(2):
        keys = [
            key(b"split.no", ValueType.UINT16, struct.pack("<H", number)),
            key(b"split.count", ValueType.UINT16, struct.pack("<H", 2)),
        ]
        weight = NewTensor(b"w%d" % number, Q4_1, (320, 100), blocks(Q4_1, 1000, number))
        path = folder / f"big-{number + 1:05}-of-00002.gguf"
        path.write_bytes(model_of(keys, [weight]))
    small_gguf(folder / "Small.GGUF")
    small_model(folder / "model.safetensors")
    (folder / "README.md").write_text("about")
    before = contents(folder)
    report = packed(folder)
    assert {file.container for file in report.files} == {"gguf", "safetensors"}
    assert (len(report.files), report.carried_files) == (4, 1)
    coded = Path(report.target)
    assert compared(coded, folder).carried_files == 1
    unpacked(coded, tmp_path / "restored")
    assert contents(tmp_path / "restored") == before


def test_a_part_may_be_compressed_alone(tmp_path: Path) -> None:
    source = small_gguf(tmp_path / "m-00001-of-00002.gguf")
    coded = Path(packed(source).target)
    assert coded.name == "m-00001-of-00002.unweight.gguf"
    assert unpacked(coded, tmp_path / "restored").source_bytes == coded.stat().st_size
    assert (tmp_path / "restored").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    ("write", "name"),
    [(small_gguf, "blob.unweight.gguf"), (small_model, "blob.unweight.safetensors")],
)
def test_a_file_without_a_suffix_gets_that_of_its_content(
    write: Callable[[Path], Path], name: str, tmp_path: Path
) -> None:
    assert Path(packed(write(tmp_path / "blob")).target) == tmp_path / name
