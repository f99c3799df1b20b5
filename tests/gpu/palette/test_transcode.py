"""From coded chunks straight to a palette, which holds the same weights bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.support.decoding import Coded, code, lossless
from tests.gpu.support.devices import Device
from tests.gpu.support.matrices import words_of
from tests.gpu.support.seeded import SEEDS, Seeded
from unweight_codecs.presets import BOUNDED, PRESETS
from unweight_codecs.span import Span
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.decoding.batch import BatchBuilder
from unweight_gpu.decoding.decoder import Decoder
from unweight_gpu.decoding.obstacles import palette_obstacle
from unweight_gpu.device.buffers import BufferPlan
from unweight_gpu.palette import reference
from unweight_gpu.palette.format import Palette

Words = NDArray[np.uint16]


@pytest.fixture
def seeded(device: Device) -> Seeded:
    """Return the device with the first seed."""
    return Seeded(device)


def coded_words(words: Words, top_bits: int = 1, classes: int = 1) -> Coded:
    spec = TensorSpec("t", "BF16", words.shape)
    return code(lossless(top_bits, classes), spec, words.reshape(-1).view(np.uint8))


def whole(coded: Coded) -> Span:
    """Return one span with all chunks of a tensor."""
    return Span(
        0,
        coded.model.layout.words,
        coded=np.concatenate([span.coded for span in coded.spans]),
        directory=np.concatenate([span.directory for span in coded.spans]),
    )


def transcoded(
    device: Seeded, coded: Coded, damage: dict[str, int] | None = None
) -> tuple[Palette, NDArray[np.uint32]]:
    """Return the palette that kernels make, in host memory, and the status of every chunk."""
    span, inputs, builder = whole(coded), BufferPlan(), BatchBuilder()
    places = builder.add_as_palette(span, coded.model, inputs.add(span.coded.size))
    batch = builder.build()
    if damage:
        tensors = batch.tensors.copy()
        for name, value in damage.items():
            tensors[name] = value
        batch = replace(batch, tensors=tensors)
    data = np.concatenate([span.coded, np.zeros(inputs.nbytes - span.coded.size, np.uint8)])
    out = device.empty(batch.out_bytes, np.uint8)
    status = device.to_host(Decoder(device).launch(batch, device.array(data), out))
    return places.palette(device.to_host(out)), status


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("classes", [1, 8])
@pytest.mark.parametrize("top_bits", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(97, 144), (64, 128), (260, 16), (16, 1040), (24, 4096)])
def test_a_palette_holds_the_same_words(
    device: Device, shape: tuple[int, int], top_bits: int, classes: int, seed: int
) -> None:
    words = words_of(shape, seed % 97)
    coded = coded_words(words, top_bits, classes)
    assert palette_obstacle(coded.model, whole(coded).directory) == ""
    palette, status = transcoded(Seeded(device, seed), coded)
    assert not status.any()
    np.testing.assert_array_equal(reference.decode(palette), words)
    assert palette.row_ptr[-1] == palette.escapes.size > 0


def test_without_escapes(seeded: Seeded) -> None:
    words = (words_of((64, 128), escapes=0) & np.uint16(0x87FF)) | np.uint16(0x3C00)
    palette, status = transcoded(seeded, coded_words(words))
    assert not status.any()
    assert palette.escapes.size == 0
    np.testing.assert_array_equal(reference.decode(palette), words)


@pytest.mark.parametrize(
    ("reason", "coded"),
    [
        ("not a BF16 matrix", lambda: _coded("F16", (64, 128))),
        ("not a BF16 matrix", lambda: _coded("BF16", (8192,))),
        ("not a BF16 matrix", lambda: _coded("BF16", (64, 128), 0.05)),
        ("rows of 120 weights", lambda: coded_words(words_of((64, 120)))),
        ("lie outside the window", lambda: coded_words(words_of((64, 128), escapes=0.1))),
        ("begins at exponent 0", lambda: coded_words(words_of((64, 128)) & np.uint16(0x80FF))),
    ],
)
def test_obstacles(reason: str, coded: "object") -> None:
    found = coded()  # type: ignore[operator]
    assert reason in palette_obstacle(found.model, whole(found).directory)


def _coded(dtype: str, shape: tuple[int, ...], epsilon: float = 0.0) -> Coded:
    data = np.random.default_rng(0).integers(0x3000, 0x3F00, int(np.prod(shape)), np.uint16)
    pipeline = BOUNDED["default"] if epsilon else PRESETS["default"]
    return code(pipeline, TensorSpec("t", dtype, shape), data.view(np.uint8), epsilon)


@pytest.mark.parametrize(
    "damage",
    [
        {"sm": 1 << 40},
        {"nibbles": 2**64 - 4},
        {"row_ptr": 1 << 33},
        {"escapes": 1 << 20},
        {"escape_number": 3},
        {"columns": 0},
        {"columns": 24},
        {"words": 64},
    ],
)
def test_wrong_places_are_refused(seeded: Seeded, damage: dict[str, int]) -> None:
    _, status = transcoded(seeded, coded_words(words_of((64, 128))), damage)
    assert status.all()
