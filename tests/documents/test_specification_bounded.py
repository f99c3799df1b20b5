"""The specification is right about tensors within an error bound: its decoder restores them."""

import struct
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.support import bounded, gguf_files, printed_decoder
from tests.support.models import Tensor, write_model
from unweight.archive import ArchiveReader
from unweight.containers.gguf.ggml_types import type_id_of
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight_codecs.accelerators import PayloadHead
from unweight_codecs.bounded.float_words import words_of_values
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.model import TensorModel
from unweight_codecs.presets import BOUNDED

SHAPE = (96, 80)
SMALL_CHUNKS = ("pack:chunk_log2=12",)  # two, the last one shorter
QUIET = NoProgress()


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return printed_decoder.load(tmp_path_factory.mktemp("decoder"))


def tensor(words: Bytes, dtype: str) -> Tensor:
    return Tensor(dtype, SHAPE, words.tobytes())


def restored(target: Path) -> bytes:
    back = target.with_name("back")
    decompress(target, back, threads=1, force=True, progress=QUIET)
    return back.read_bytes()


def heads(target: Path) -> dict[str, PayloadHead]:
    with ArchiveReader(target) as archive:
        return {
            source.spec.name: archive.head(source, here)
            for source, here in archive.tensors()
            if archive.is_coded(source.spec.name)
        }


def models(target: Path) -> dict[str, TensorModel]:
    return {name: head.model for name, head in heads(target).items()}


@pytest.mark.parametrize("preset", BOUNDED)
def test_printed_decoder_restores_bounded_files(
    tmp_path: Path, decoder: ModuleType, preset: str
) -> None:
    tensors = {}
    for seed, dtype in enumerate(bounded.FLOATS):
        plain = bounded.words_of(bounded.normal(SHAPE, seed), dtype)
        tensors[f"plain {dtype}"] = tensor(bounded.with_specials(plain, dtype), dtype)
        one_chunk = bounded.words_of(bounded.few((64, 60), seed), dtype)
        tensors[f"few {dtype}"] = Tensor(dtype, (64, 60), one_chunk.tobytes())
        factors = bounded.low_rank(SHAPE, 1, seed, 0.001)
        tensors[f"factors {dtype}"] = tensor(bounded.words_of(factors, dtype), dtype)
    tensors["exact"] = Tensor("I32", SHAPE, np.arange(SHAPE[0] * SHAPE[1], dtype="<i4").tobytes())
    tensors["vector"] = Tensor("F32", (1100,), bounded.normal((1100,), 9).astype("<f4").tobytes())
    source = write_model(tmp_path / "model.safetensors", tensors)
    target = tmp_path / "coded"
    options = CompressOptions(preset=preset, stages=SMALL_CHUNKS, epsilon=0.004)
    compress(source, target, options, QUIET)
    found = models(target)
    assert found["plain BF16"].on_levels.form.low_bits
    assert found["exact"].is_exact
    if preset == "max":
        assert all(found[f"factors {dtype}"].on_levels.factors for dtype in bounded.FLOATS)
    if preset != "fast":
        changed = [model.bounded for model in found.values() if model.bounded]
        assert any(each.form.table is not None for each in changed)
    expected = restored(target)
    assert expected != source.read_bytes()
    assert decoder.restore(target.read_bytes()) == expected


@pytest.mark.parametrize(
    "stages",
    [
        ("outlier:tau=2",),
        ("grid:spacing=cdf",),
        ("grid:spacing=lloyd,tables=3",),
        ("tile_svd:rank=2,tile=37",),
        ("outlier:tau=4", "tile_svd:rank=2", "grid:spacing=lloyd"),
    ],
    ids=" ".join,
)
def test_printed_decoder_restores_every_setting(
    tmp_path: Path, decoder: ModuleType, stages: tuple[str, ...]
) -> None:
    tensors = {
        f"{dtype} {name}": tensor(
            bounded.with_specials(bounded.words_of(values, dtype), dtype), dtype
        )
        for dtype in bounded.FLOATS
        for name, values in (
            ("normal", bounded.normal(SHAPE, 3)),
            ("factors", bounded.low_rank(SHAPE, 2, 4, 0.01)),
        )
    }
    source = write_model(tmp_path / "model.safetensors", tensors)
    target = tmp_path / "coded"
    options = CompressOptions(stages=(*SMALL_CHUNKS, *stages), epsilon=0.2)
    compress(source, target, options, QUIET)
    found = models(target)
    if "spacing" in stages[-1]:
        assert any(model.on_levels.form.table is not None for model in found.values())
    if "tile_svd" in "".join(stages):
        assert found["F16 factors"].on_levels.factors is not None
    assert all(model.bounded for model in found.values())
    assert decoder.restore(target.read_bytes()) == restored(target)


def test_printed_decoder_restores_chunks_of_step_0(tmp_path: Path, decoder: ModuleType) -> None:
    """Weights so small that no step is allowed lie beside others: their chunk is kept whole."""
    values = bounded.normal((512, 64), 5)
    values[:256] *= 1e-36
    source = write_model(
        tmp_path / "model.safetensors",
        {"w": Tensor("F32", (512, 64), values.astype("<f4").tobytes())},
    )
    target = tmp_path / "coded"
    compress(source, target, CompressOptions(stages=SMALL_CHUNKS, epsilon=0.05), QUIET)
    steps = models(target)["w"].on_levels.steps
    assert steps[0] == 0 < steps[-1]
    assert decoder.restore(target.read_bytes()) == restored(target)


def test_printed_decoder_restores_bounded_gguf_files(tmp_path: Path, decoder: ModuleType) -> None:
    entries, data = [], b""
    for seed, dtype in enumerate(bounded.FLOATS):
        words = bounded.words_of(bounded.normal(SHAPE, seed), dtype)
        entries.append(gguf_files.tensor(dtype.encode(), SHAPE[::-1], len(data), type_id_of(dtype)))
        data += words.tobytes()
    keys = [gguf_files.text(b"general.architecture", b"llama")]
    source, target = tmp_path / "model.gguf", tmp_path / "coded.gguf"
    source.write_bytes(gguf_files.file_of(keys, entries, data))
    compress(source, target, CompressOptions(epsilon=0.004, stages=SMALL_CHUNKS), QUIET)
    assert all(model.bounded for model in models(target).values())
    assert decoder.restore(target.read_bytes()) == restored(target)


@pytest.mark.parametrize("dtype", bounded.FLOATS)
def test_printed_rounding_is_that_of_the_code(decoder: ModuleType, dtype: str) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 20_000, np.uint32)
    halves = rng.integers(0, 1 << 15, 4000, np.uint32) << np.uint32(16)
    ties = [halves + np.uint32(k) for k in (0x7FFF, 0x8000, 0x8001)]
    f16 = rng.integers(0, 0x7C00, 4000).astype("<u2").view("<f2").astype(np.float32)
    between = (f16[1:] + f16[:-1]) / 2  # ties, wherever both are neighbours
    edge = np.array([65504, 65519.996, 65520, -65520, 1e30, -1e30, 2**-24, 2**-25, -0.0], "<f4")
    values = np.concatenate([np.concatenate([bits, *ties]).view(np.float32), between, edge])
    values = values[np.isfinite(values) & (np.abs(values) < 3e38)]
    expected = words_of_values(values, dtype).view(f"<u{bounded.SIZES[dtype]}")
    assert [decoder.word_of(float(value), dtype) for value in values] == expected.tolist()


NEWER = {
    "another feature": (0.01, b'[\\"bounded\\"]', b'[\\"delimit\\"]'),
    "another mode": (0.01, b'\\"mode\\":\\"bounded\\"', b'\\"mode\\":\\"rounded\\"'),
    "another version": (0.01, b'\\"format\\":[1,0]', b'\\"format\\":[2,0]'),
    "another version of a lossless file": (0.0, b'\\"format\\":[1,0]', b'\\"format\\":[2,0]'),
}


@pytest.mark.parametrize("case", NEWER)
def test_printed_decoder_refuses_what_it_does_not_know(
    tmp_path: Path, decoder: ModuleType, case: str
) -> None:
    """What must be refused is refused, even if every digest is right."""
    epsilon, before, after = NEWER[case]
    words = bounded.words_of(bounded.normal(SHAPE, 1), "F32")
    source = write_model(tmp_path / "model.safetensors", {"w": tensor(words, "F32")})
    target = tmp_path / "coded"
    compress(source, target, CompressOptions(epsilon=epsilon), QUIET)
    data = target.read_bytes()
    start = 8 + struct.unpack_from("<Q", data)[0]
    changed = data.replace(before, after)
    assert changed != data
    digest = f"{decoder.xxh3(changed[:44] + b'0' * 16 + changed[60:start]):016x}".encode()
    with pytest.raises(ValueError, match="not a valid Unweight file"):
        decoder.restore(changed[:44] + digest + changed[60:])
