"""Unweight files whose container is not that of their source: a made-up one, in safetensors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unweight.archive.host import HOSTS, host_of
from unweight.containers import registry
from unweight.containers.base import ContainerIndex, FileSource, TensorEntry
from unweight.containers.registry import CONTAINERS, Container
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.inspect.header import inspect_header
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.errors import FormatError, IntegrityError
from unweight_codecs.tensor_spec import TensorSpec

MAGIC = b"TOY1"
SILENT = NoProgress()


def parse_index(header: bytes, size: int) -> ContainerIndex:
    """Parse magic, u32 length and a JSON list of [name, dtype, shape]; the tensors follow."""
    if header[:4] != MAGIC:
        raise FormatError("not a toy")
    at, tensors = len(header), []
    for name, dtype, shape in json.loads(header[8:]):
        spec = TensorSpec(name, dtype, tuple(shape))
        tensors.append(TensorEntry(spec, at, spec.nbytes))
        at += spec.nbytes
    return ContainerIndex("toy", header, None, tuple(tensors), size)


def read_index(source: FileSource) -> ContainerIndex:
    length = int.from_bytes(source.read_at(4, 4), "little")
    return parse_index(source.read_at(0, 8 + length), source.size)


TOY = Container(
    "toy",
    "toy",
    ".toy",
    lambda head: head.startswith(MAGIC),
    read_index,
    parse_index,
    host="safetensors",
)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTAINERS, TOY.name, TOY)


def write_toy(path: Path) -> Path:
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.02, (64, 64)).astype("<f4").tobytes()
    # safetensors has no dtype for quantised blocks, coded or, as few as these, stored.
    tensors = [
        ("blocks", "Q8_0", (64, 256), rng.bytes(64 * 256 // 32 * 34)),
        ("few", "Q4_0", (2, 64), rng.bytes(4 * 18)),
        ("small", "F32", (3,), bytes(range(12))),
        ("weight", "F32", (64, 64), weights),
    ]
    header = json.dumps([tensor[:3] for tensor in tensors]).encode()
    parts = [MAGIC, len(header).to_bytes(4, "little"), header, *(data for *_, data in tensors)]
    path.write_bytes(b"".join(parts))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "m.toy")


@pytest.fixture
def coded(source: Path) -> Path:
    compress(source, None, CompressOptions(), SILENT)
    return source.with_name("m.unweight.safetensors")


def test_a_file_comes_back_under_its_own_name(source: Path, coded: Path) -> None:
    original = source.read_bytes()
    verify(coded, source, threads=1, progress=SILENT)
    source.unlink()
    report = decompress(coded, None, threads=1, force=False, progress=SILENT)
    assert (Path(report.target), source.read_bytes()) == (source, original)


def test_the_host_shows_tensors_by_the_dtypes_that_it_has(coded: Path) -> None:
    with FileSource(coded) as file:
        index = registry.read_index(file)
    shown = {entry.spec.name: (entry.spec.dtype, entry.spec.shape) for entry in index.tensors}
    assert index.container == "safetensors"
    assert shown["few"] == ("U8", (72,))
    assert shown["small"] == ("F32", (3,))
    rows = {row.name: row.dtype for row in inspect_header(coded).tensors}
    assert (rows["few"], rows["blocks"]) == ("Q4_0", "Q8_0")


def test_a_directory_keeps_its_names(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_toy(folder / "m.toy")
    compress(folder, None, CompressOptions(), SILENT)
    back = tmp_path / "back"
    decompress(tmp_path / "model.unweight", back, threads=1, force=False, progress=SILENT)
    assert (back / "m.toy").read_bytes() == (folder / "m.toy").read_bytes()


def test_a_hosted_file_is_not_compressed_again(coded: Path) -> None:
    with pytest.raises(FormatError, match="already compressed by Unweight"):
        compress(coded, coded.with_name("twice"), CompressOptions(), SILENT)


def test_a_source_must_be_one_that_the_file_hosts(
    coded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONTAINERS, TOY.name, replace(TOY, host="gguf"))
    with pytest.raises(IntegrityError, match="another container than its source calls for"):
        verify(coded, None, threads=1, progress=SILENT)


def test_a_source_of_an_unknown_container_is_refused(
    coded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(CONTAINERS, TOY.name)
    with pytest.raises((FormatError, IntegrityError), match="unknown container 'toy'"):
        verify(coded, None, threads=1, progress=SILENT)


def test_every_container_has_a_host() -> None:
    for row in CONTAINERS.values():
        assert row.host in HOSTS
        assert HOSTS[row.host] is host_of(ContainerIndex(row.name, b"", None, (), 0))
