"""The specification is right: its example is real, its tables agree with the code, and the decoder
printed in it restores what the library writes."""

import importlib.util
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import zstandard

from scripts import format_example
from tests.support.models import Tensor, gaussian, write_model
from unweight_codecs.archive import ArchiveReader
from unweight_codecs.entropy.directory import CODERS, LENGTH_BITS, TABLE_BITS
from unweight_codecs.layouts import layout_of
from unweight_codecs.manifest import FORMAT_MAJOR, FORMAT_MINOR
from unweight_codecs.operations.compress import CompressOptions, compress
from unweight_codecs.operations.progress import NoProgress
from unweight_codecs.presets import PRESETS
from unweight_codecs.registry import BUILT_IN_STAGES
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

SPECS = format_example.SPECIFICATION.parent
FORMAT = format_example.SPECIFICATION.read_text(encoding="utf-8")
WORDS = 7000  # with chunks of about 4096: two, the last one shorter
Restore = Callable[[bytes], bytes]


def rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture(scope="module")
def restore(tmp_path_factory: pytest.TempPathFactory) -> Restore:
    """Return the decoder that the specification prints."""
    programs = re.findall(r"^```python\n(.*?)^```$", FORMAT, flags=re.S | re.M)
    assert len(programs) == 1
    path = tmp_path_factory.mktemp("decoder") / "decoder.py"
    path.write_text(programs[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("decoder", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Restore = module.restore
    return found


def tensor_of(dtype: str, seed: int) -> Tensor:
    """Return a tensor whose words are skewed, with a few that are anything at all."""
    rng = np.random.default_rng(seed)
    word_bytes = layout_of(TensorSpec("", dtype, (24,))).word_bytes
    words = rng.normal(0, 0.02, WORDS).astype("<f8").view(np.uint8).reshape(WORDS, 8)
    if dtype in ("F32", "C64", "BF16"):
        short = rng.normal(0, 0.02, WORDS).astype("<f4")
        words = short.view(np.uint8).reshape(WORDS, 4)
    elif dtype == "F16":
        words = rng.normal(0, 0.02, WORDS).astype("<f2").view(np.uint8).reshape(WORDS, 2)
    elif dtype != "F64":
        words = rng.geometric(0.2, (WORDS, 8)).astype(np.uint8)
    chosen = words[:, -word_bytes:].copy()
    anything = rng.random(WORDS) < 0.01
    chosen[anything] = rng.integers(0, 256, (int(anything.sum()), word_bytes), np.uint8)
    elements = chosen.size * 8 // DTYPES[dtype].bits
    return Tensor(dtype, (elements,), chosen.tobytes())


@pytest.mark.parametrize("preset", PRESETS)
def test_printed_decoder_restores_every_dtype(
    tmp_path: Path, restore: Restore, preset: str
) -> None:
    tensors = {name: tensor_of(name, seed) for seed, name in enumerate(DTYPES)}
    tensors |= {"scalar": Tensor("F32", (), bytes(4)), "nothing": Tensor("I64", (0, 4), b"")}
    source = write_model(tmp_path / "model.safetensors", tensors, {"ünï": '"code"'})
    target = tmp_path / "coded.safetensors"
    options = CompressOptions(preset=preset, stages=("pack:chunk_log2=12",))
    compress(source, target, options, NoProgress())
    with ArchiveReader(target) as archive:
        coded = set(archive.manifest.coded)
    assert len(coded) > 15
    assert restore(target.read_bytes()) == source.read_bytes()


def test_printed_decoder_restores_every_kind_of_segment(tmp_path: Path, restore: Restore) -> None:
    phrase = np.random.default_rng(1).bytes(500)
    constant = np.full(WORDS, 0.5, "<f4").tobytes()
    tensors = {
        "contexts": gaussian("BF16", (96, 128), 2, octaves=8),
        "contexts of complex": Tensor(
            "C64", (96, 64), gaussian("F32", (96, 128), 3, octaves=8).data
        ),
        "tables": gaussian("BF16", (40, 2048), 4, octaves=8),
        "repeated": Tensor("U8", (10_000,), phrase * 20),
        "constant": Tensor("F32", (WORDS,), constant),
    }
    source = write_model(tmp_path / "model.safetensors", tensors)
    target = tmp_path / "coded.safetensors"
    options = CompressOptions(stages=("pack:chunk_log2=12", "tile_svd:classes=4"))
    compress(source, target, options, NoProgress())
    coders: set[str] = set()
    with ArchiveReader(target) as archive:
        heads = [archive.head(source, here) for source, here in archive.tensors()]
    for head in heads:
        entries = head.directory["segments"].ravel() >> LENGTH_BITS + TABLE_BITS
        coders |= {CODERS[entry] for entry in entries}
    assert coders == set(CODERS)
    assert any(head.model.classes for head in heads)
    assert restore(target.read_bytes()) == source.read_bytes()


def test_printed_decoder_refuses_a_flipped_bit(tmp_path: Path, restore: Restore) -> None:
    source, target = tmp_path / "model.safetensors", tmp_path / "coded.safetensors"
    source.write_bytes(format_example.source_file())
    compress(source, target, CompressOptions(), NoProgress())
    data = bytearray(target.read_bytes())
    data[-200] ^= 1
    with pytest.raises(ValueError, match="not a valid Unweight file"):
        restore(bytes(data))


def test_worked_example_is_what_the_code_writes() -> None:
    assert FORMAT.count(format_example.BEGIN) == FORMAT.count(format_example.END) == 1
    written = re.search(r"with zstd ([\d.]+)\.$", FORMAT, flags=re.M)
    assert written
    if written[1] != ".".join(map(str, zstandard.ZSTD_VERSION)):
        pytest.skip(f"the example was written with zstd {written[1]}, whose frames differ")
    assert format_example.with_example(FORMAT) == FORMAT


def test_version_and_coders_are_those_of_the_code() -> None:
    assert FORMAT.startswith(f"# The Unweight file format, version {FORMAT_MAJOR}.{FORMAT_MINOR}\n")
    named = [row[1] for row in rows(FORMAT) if row[0].isdigit() and row[1] in CODERS]
    assert named == list(CODERS)


def test_settings_are_those_of_the_stages() -> None:
    section = FORMAT.split("## 3. Pipelines")[1].split("## 4. ")[0]
    documented = {row[0]: row[1] for row in rows(section) if len(row) == 2}
    for stage in BUILT_IN_STAGES:
        settings = {field.name for field in fields(stage)}
        assert settings <= set(re.findall(r"\w+", documented[stage.name]))


def test_dtypes_are_those_of_the_code() -> None:
    table = [row for row in rows((SPECS / "planes.md").read_text("utf-8")) if len(row) == 4]
    documented = {
        dtype: tuple(int(cell) if cell.isdigit() else 0 for cell in row[1:])
        for row in table
        for dtype in row[0].split(", ")
        if row[1].isdigit()
    }
    layouts = {name: layout_of(TensorSpec("", name, (24,))) for name in DTYPES}
    assert documented == {
        name: (layout.word_bytes, layout.exponent_bits, layout.mantissa_bits)
        for name, layout in layouts.items()
    }
