"""Checkpoints in device memory: the same bytes, or palettes of the same weights."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.support.blas import blas_of
from tests.gpu.support.devices import Device
from tests.gpu.support.matrices import Words, words_of
from tests.gpu.support.palette_model import narrowed, widened
from unweight.containers.base import FileSource
from unweight.containers.registry import read_index
from unweight.containers.safetensors import header_bytes
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.progress import NoProgress
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.device.interface import StreamingDevice
from unweight_gpu.device_tensors import DeviceTensor, load
from unweight_gpu.palette.codec import PaletteCodec
from unweight_gpu.palette.linear import LinearBackend
from unweight_gpu.palette.strategy import Strategy

DOCUMENT = Path(__file__).parents[2] / "docs" / "gpu.md"
GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden" / "1.0" / "lossless"


def tensors_of(path: Path) -> dict[str, bytes]:
    with FileSource(path) as file:
        return {t.spec.name: file.read_at(t.offset, t.nbytes) for t in read_index(file).tensors}


@pytest.mark.parametrize("batch_bytes", [1, 1 << 14, 1 << 28])
@pytest.mark.parametrize(
    ("coded", "original"),
    [
        ("floats16.default.unweight.safetensors", "floats16.safetensors"),
        ("floats16.max.unweight.safetensors", "floats16.safetensors"),
        ("integers.default.unweight.safetensors", "integers.safetensors"),
        ("edges.fast.unweight.safetensors", "edges.safetensors"),
        ("blocks.default.unweight.gguf", "blocks.gguf"),
    ],
)
def test_bytes(streaming: StreamingDevice, coded: str, original: str, batch_bytes: int) -> None:
    found = {
        tensor.spec.name: streaming.to_host(tensor.words).tobytes()
        for tensor in load(GOLDEN / coded, streaming, batch_bytes=batch_bytes)
    }
    assert found == tensors_of(GOLDEN / original)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model of matrices, of which most can be palettes."""
    shapes = {"a": (96, 128), "b": (64, 120), "c": (200, 64), "d": (128, 256)}
    words = {name: words_of(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    return compressed(words, tmp_path / "model.safetensors")


def compressed(matrices: Mapping[str, Words], target: Path) -> Path:
    """Write a file of BF16 matrices, and next to it the same in plain."""
    entries = [(name, "BF16", words.shape, words.nbytes) for name, words in matrices.items()]
    source = target.with_name("source.safetensors")
    body = b"".join(words.tobytes() for words in matrices.values())
    source.write_bytes(header_bytes(entries, None) + body)
    compress(source, target, CompressOptions(), NoProgress())
    return target


def test_palettes(streaming: StreamingDevice, model: Path, tmp_path: Path) -> None:
    codec = PaletteCodec(streaming)
    original = tensors_of(tmp_path / "source.safetensors")
    held = {}
    for tensor in load(model, streaming, palettes=True, batch_bytes=60_000):
        words = tensor.words if tensor.palette is None else codec.expand(tensor.palette)
        assert streaming.to_host(words).tobytes() == original[tensor.spec.name]
        held[tensor.spec.name] = tensor.palette is not None
        if tensor.palette is not None:
            codec.check(tensor.palette)
            assert tensor.nbytes < 0.8 * tensor.spec.nbytes
    assert held == {"a": True, "b": False, "c": True, "d": True}


@pytest.mark.parametrize("palettes", [False, True])
def test_layers(
    device: Device, streaming: StreamingDevice, model: Path, palettes: bool, tmp_path: Path
) -> None:
    """A file becomes layers that multiply: with a palette where there is one, without a copy."""
    backend = LinearBackend(streaming, blas_of(device))
    original = tensors_of(tmp_path / "source.safetensors")
    for tensor in load(model, streaming, palettes=palettes):
        layer = tensor.linear(backend)
        assert layer.nbytes == tensor.nbytes
        assert (Strategy.FUSED in layer.held) == (palettes and tensor.spec.name != "b")
        rows, cols = tensor.spec.shape
        words = np.frombuffer(original[tensor.spec.name], np.uint16).reshape(rows, cols)[1:]
        x = narrowed(np.random.default_rng(1).standard_normal((3, cols)))
        found = widened(streaming.to_host(layer.matmul(streaming.array(x), "BF16")))[:, 1:]
        weights, inputs = widened(words).astype(np.float64), widened(x).astype(np.float64)
        size = np.abs(inputs) @ np.abs(weights).T
        assert (np.abs(found - inputs @ weights.T) <= size * 2.0**-8).all()


def test_the_example_of_the_documentation(
    device: Device, streaming: StreamingDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, words = "model.layers.0.mlp.up_proj.weight", words_of((96, 128))
    words[0] = 0x3F80
    compressed({name: words, "norm": words_of((8, 8))}, tmp_path / "model.unweight.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unweight_gpu.device.cupy_device.CudaDevice", lambda number: streaming)
    monkeypatch.setattr(
        "unweight_gpu.palette.cuda.linear_backend",
        lambda opened: LinearBackend(opened, blas_of(device)),
    )
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    names = {"x": streaming.array(np.full((1, 128), 0x3F80, np.uint16))}
    exec(code, names)  # noqa: S102
    assert widened(streaming.to_host(names["y"]))[0, 0] == 128


def test_what_is_no_matrix_makes_no_layer(device: Device, streaming: StreamingDevice) -> None:
    backend = LinearBackend(streaming, blas_of(device))
    nothing = streaming.empty(64, np.uint8)
    for spec in (TensorSpec("t", "BF16", (32,)), TensorSpec("t", "F32", (4, 4))):
        with pytest.raises(UsageError, match=r"tensor 't' is .*a linear layer takes a BF16 matrix"):
            DeviceTensor(spec, nothing).linear(backend)


@pytest.mark.parametrize("palettes", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_damage_is_found(
    streaming: StreamingDevice, model: Path, seed: int, palettes: bool
) -> None:
    data = bytearray(model.read_bytes())
    place = int(np.random.default_rng(seed).integers(len(data) // 2, len(data)))
    data[place] ^= 1
    model.write_bytes(data)
    with pytest.raises(IntegrityError, match=r"tensor '[abcd]': a chunk's checksum is wrong"):
        list(load(model, streaming, palettes=palettes))
