"""The specification is right: its example is real, its tables agree with the code, and the decoder
printed in it restores what the library writes."""

import re
import struct
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import zstandard

from scripts import block_table, format_example
from tests.support import gguf_files, printed_decoder
from tests.support.models import Tensor, gaussian, write_model
from unweight.archive import ArchiveReader
from unweight.containers.gguf.ggml_types import GGML_TYPES, type_id_of
from unweight.containers.gguf.values import ValueType
from unweight.manifest import FORMAT_MAJOR, FORMAT_MINOR
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.progress import NoProgress
from unweight_codecs.layouts import layout_of
from unweight_codecs.layouts.contexts import CONTEXTS, PREDICTED, LowBits, Predictor, ZeroPoint
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.payload.directory import LENGTH_BITS, TABLE_BITS
from unweight_codecs.presets import PRESETS
from unweight_codecs.registry import BUILT_IN_STAGES
from unweight_codecs.tensor_spec import BLOCK_DTYPES, DTYPES, TensorSpec

SPECS = format_example.SPECIFICATION.parent
FORMAT = format_example.SPECIFICATION.read_text(encoding="utf-8")
BLOCKS = block_table.SPECIFICATION.read_text(encoding="utf-8")
WORDS = 7000  # with chunks of about 4096: two, the last one shorter
Restore = Callable[[bytes], bytes]


def rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return the program that the specification prints."""
    return printed_decoder.load(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def restore(decoder: ModuleType) -> Restore:
    found: Restore = decoder.restore
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
        coders |= {BUILT_IN_CODERS[entry] for entry in entries}
    assert coders == set(BUILT_IN_CODERS)
    assert any(head.model.context_map for head in heads)
    assert restore(target.read_bytes()) == source.read_bytes()


def skewed_blocks(name: str, seed: int) -> bytes:
    """Return blocks of skewed bytes, a few of anything at all, in at least two chunks."""
    rng = np.random.default_rng(seed)
    dtype = BLOCK_DTYPES[name]
    count = max(300, 30_000 // dtype.block_bytes)
    blocks = rng.geometric(0.1, (count, dtype.block_bytes)).astype(np.uint8)
    anything = rng.random(count) < 0.02
    shape = (int(anything.sum()), dtype.block_bytes)
    blocks[anything] = rng.integers(0, 256, shape, np.uint8)
    return blocks.tobytes()


def gguf_file(tensors: dict[bytes, tuple[str, bytes]], *, alignment: int = 32) -> bytes:
    """Return a GGUF file with all kinds of keys; the padding between tensors is not zero."""
    entries, data = [], bytearray()
    for name, (dtype, content) in tensors.items():
        kind = GGML_TYPES[type_id_of(dtype)]
        elements = len(content) // kind.block_bytes * kind.block_elements
        ne = (elements,) if elements else (kind.block_elements, 0)
        entries.append(gguf_files.tensor(name, ne, len(data), kind.id))
        data += content
        data += b"\7" * (-len(data) % alignment)
    words = b"".join(gguf_files.string(b"%d" % k) for k in range(100))
    nested = gguf_files.array(ValueType.ARRAY, 1, gguf_files.array(ValueType.STRING, 100, words))
    keys = [
        gguf_files.text(b"general.architecture", b"llama"),
        gguf_files.aligned(alignment),
        gguf_files.key(b"words", ValueType.ARRAY, nested),
        gguf_files.key(b"numbers", ValueType.ARRAY, gguf_files.array(ValueType.UINT8, 2, b"ab")),
        gguf_files.key(b"scale", ValueType.FLOAT32, struct.pack("<f", 0.5)),
    ]
    return gguf_files.file_of(keys, entries[::-1], bytes(data), alignment, version=2)


@pytest.mark.parametrize("preset", PRESETS)
def test_printed_decoder_restores_gguf_files(tmp_path: Path, restore: Restore, preset: str) -> None:
    plain = [kind.name for kind in GGML_TYPES.values() if kind.name in DTYPES]
    tensors = {name.encode(): (name, tensor_of(name, k).data) for k, name in enumerate(plain)}
    tensors |= {b"nothing": ("Q4_K", b""), b"not \xff text": ("F32", bytes(4096))}
    tensors[b"last"] = ("F16", bytes(range(62)))
    source, target = tmp_path / "model.gguf", tmp_path / "coded.gguf"
    source.write_bytes(gguf_file(tensors, alignment=64))
    options = CompressOptions(preset=preset, stages=("pack:chunk_log2=12",))
    compress(source, target, options, NoProgress())
    with ArchiveReader(target) as archive:
        assert set(plain) <= set(archive.manifest.coded)
        assert any(archive.manifest.padding)
    assert restore(target.read_bytes()) == source.read_bytes()


def test_printed_decoder_restores_every_block_type(tmp_path: Path, restore: Restore) -> None:
    tensors = {name.encode(): (name, skewed_blocks(name, k)) for k, name in enumerate(BLOCK_DTYPES)}
    source, target = tmp_path / "model.gguf", tmp_path / "coded.gguf"
    source.write_bytes(gguf_file(tensors))
    compress(source, target, CompressOptions(stages=("pack:chunk_log2=12",)), NoProgress())
    with ArchiveReader(target) as archive:
        assert set(archive.manifest.coded) == set(BLOCK_DTYPES)
        assert all(archive.head(*pair).model.chunks > 1 for pair in archive.tensors())
    assert restore(target.read_bytes()) == source.read_bytes()


def test_printed_decoder_restores_contexts(tmp_path: Path, restore: Restore) -> None:
    tensors = {
        name.encode(): (name, gguf_files.centred_blocks(name, seed))
        for seed, name in enumerate(PREDICTED)
    }
    source, target = tmp_path / "model.gguf", tmp_path / "coded.gguf"
    source.write_bytes(gguf_file(tensors))
    compress(source, target, CompressOptions(stages=("pack:chunk_log2=12",)), NoProgress())
    with ArchiveReader(target) as archive:
        for original, here in archive.tensors():
            model = archive.head(original, here).model
            assert model.contextual == set(PREDICTED[original.spec.name])
    assert restore(target.read_bytes()) == source.read_bytes()


def test_printed_contexts_are_those_of_the_code(decoder: ModuleType) -> None:
    rng = np.random.default_rng(0)
    halves = rng.integers(0, 256, (20_000, 4), np.uint8)
    ties = np.array([[d, -d * k / 4] for d in (0.5, 3.0) for k in range(130)], "<f2")
    special = np.array([0.0, -0.0, 1.0, -6e-8, 65504, np.inf, -np.inf, np.nan], "<f2")
    pairs = np.stack(np.meshgrid(special, special), axis=-1).reshape(-1, 2)
    halves = np.vstack([halves, ties.view(np.uint8), pairs.view(np.uint8)])
    streams = dict(zip(("d.0", "d.1", "m.0", "m.1"), np.ascontiguousarray(halves.T), strict=True))
    for levels in (16, 32):
        expected = ZeroPoint("d", "m", levels).contexts(streams)
        assert len(np.unique(expected)) == CONTEXTS
        assert decoder.contexts_of(streams, "zero point", "d", "m", levels) == expected.tolist()
    contexts = LowBits("d.1").contexts(streams).tolist()
    assert decoder.contexts_of(streams, "low bits", "d.1") == contexts


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
    named = [row[1] for row in rows(FORMAT) if row[0].isdigit() and row[1] in BUILT_IN_CODERS]
    assert named == list(BUILT_IN_CODERS)


def test_settings_are_those_of_the_stages() -> None:
    section = FORMAT.split("## 3. Pipelines")[1].split("## 4. ")[0]
    documented = {row[0]: row[1] for row in rows(section) if len(row) == 2}
    for stage in BUILT_IN_STAGES:
        settings = set(stage().to_dict()["configuration"])
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


def described(predictor: Predictor) -> tuple[str | int, ...]:
    """Return a predictor as the printed decoder has it."""
    assert isinstance(predictor, ZeroPoint | LowBits)
    kinds = {ZeroPoint: "zero point", LowBits: "low bits"}
    return kinds[type(predictor)], *astuple(predictor)


def test_block_types_are_those_of_the_code(decoder: ModuleType) -> None:
    assert block_table.with_tables(BLOCKS) == BLOCKS
    types = {
        name: (int(number), int(values), int(size), text)
        for name, number, values, size, text in (row for row in rows(BLOCKS) if len(row) == 5)
        if "@" in text
    }
    assert types.keys() == BLOCK_DTYPES.keys()
    assert types == decoder.BLOCKS
    predicted = {
        name: {stream: described(predictor) for stream, predictor in streams.items()}
        for name, streams in PREDICTED.items()
    }
    assert predicted == decoder.PREDICTED
    assert set(decoder.GGUF_TYPES.items()) == {(k, kind.name) for k, kind in GGML_TYPES.items()}
