"""Rates of palettes: expanding a layer, and multiplying beside what multiplies plain words."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.data import Layer, Words, trained
from benchmarks.gpu.decoding import described
from benchmarks.gpu.figures import Figure, Target, microseconds, terabytes
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_gpu.checking.comparison import Verifier
from unweight_gpu.device.interface import Array, Device
from unweight_gpu.device.timing import Timer, Work, copies_of
from unweight_gpu.palette.codec import PaletteCodec
from unweight_gpu.palette.format import Palette, Refusal
from unweight_gpu.palette.product import PaletteProduct

MULTIPLIED: Final = ("q_proj", "gate_proj", "down_proj")  # 4096 x 4096, 14336 x 4096, its opposite
BATCHES: Final = (1, 4, 16)


class Peer(Protocol):
    """What multiplies plain BF16 words."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    def product(self, words: Array, x: Array, out: Array) -> Work:
        """Return what writes x Wᵀ to ``out``, all u16 words: [batch, cols], [rows, cols]."""
        ...


def expanding(device: Device, timer: Timer, layer: Layer, target: Target | None = None) -> Figure:
    """Expand the palettes of a layer per run; the words are compared. Raises IntegrityError."""
    codec, verifier = PaletteCodec(device), Verifier(device)
    runs, outs = list[Work](), list[Array]()
    for _ in range(copies_of(layer.nbytes)):
        outs = [device.empty(words.shape, np.uint16) for words in layer.matrices.values()]
        palettes = [_palette(device, codec, words) for words in layer.matrices.values()]
        runs.append(partial(_expand, codec, palettes, outs))
    seconds = timer.samples(runs)
    for (name, words), out in zip(layer.matrices.items(), outs, strict=True):
        if verifier.first_difference(out, device.array(words)) is not None:
            raise IntegrityError(f"{layer.name}: {name}: expanded to other words")
    rate = terabytes(layer.nbytes, seconds)
    return Figure("palette to BF16", described(layer), rate, "TB/s", target=target)


def products(
    device: Device,
    timer: Timer,
    peer: Peer | None,
    matrices: Sequence[Words],
    target: Target | None = None,
    batches: Sequence[int] = BATCHES,
) -> Iterator[Figure]:
    """Multiply by palettes of matrices, and let a peer multiply by the same as plain words.

    The target is for batch 1. Raises IntegrityError if the results are not about the same.
    """
    codec, kernel = PaletteCodec(device), PaletteProduct(device)
    for words in matrices:
        (rows, cols), number = words.shape, copies_of(words.nbytes)
        palettes = [_palette(device, codec, words) for _ in range(number)]
        plain = [device.array(words) for _ in range(number if peer else 0)]
        for batch in batches:
            x = device.array(trained((batch, cols), batch))
            out, other = (device.empty((batch, rows), np.uint16) for _ in range(2))
            own = timer.samples([partial(kernel.multiply, p, x, "BF16", out) for p in palettes])
            figure = partial(
                Figure, "fused product", f"{rows} x {cols}, batch {batch}", microseconds(own), "us"
            )
            if peer is None:
                yield figure()
                continue
            seconds = timer.samples([peer.product(each, x, other) for each in plain])
            _require_close(peer.name, device.to_host(out), device.to_host(other))
            aim = target if batch == 1 else None
            yield figure(peer.name, microseconds(seconds), aim)


def _palette(device: Device, codec: PaletteCodec, words: Words) -> Palette:
    found = codec.encode(device.array(words))
    if isinstance(found, Refusal):
        raise UsageError(f"a matrix of {words.shape} has no palette: {found.reason}")
    return found


def _expand(codec: PaletteCodec, palettes: Sequence[Palette], outs: Sequence[Array]) -> None:
    for palette, out in zip(palettes, outs, strict=True):
        codec.expand(palette, out)


def _require_close(peer: str, own: Words, other: Words) -> None:
    """Results are rounded to 8 bits after sums in other orders, those of a peer perhaps twice."""
    left, right = _numbers(own), _numbers(other)
    if not (np.abs(left - right) <= 2.0**-6 * np.abs(right).max()).all():
        raise IntegrityError(f"{peer} and the fused kernel give different products")


def _numbers(words: Words) -> NDArray[np.float32]:
    return (words.astype(np.uint32) << 16).view(np.float32)
