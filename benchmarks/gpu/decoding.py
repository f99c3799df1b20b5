"""Rates of decoding a layer per launch: to words, and to palettes."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from benchmarks.gpu.data import Layer, coded_layer
from benchmarks.gpu.figures import Figure, Target, terabytes
from unweight.units import count
from unweight_codecs.accelerators import CodedSpan
from unweight_codecs.errors import IntegrityError
from unweight_codecs.presets import DEFAULT
from unweight_gpu.checking.comparison import Verifier
from unweight_gpu.decoding.batch import BatchBuilder
from unweight_gpu.decoding.decoder import Decoder, LaunchPlan
from unweight_gpu.decoding.obstacles import palette_obstacle
from unweight_gpu.device.buffers import BufferPlan
from unweight_gpu.device.interface import Array, Device
from unweight_gpu.device.timing import Timer, copies_of
from unweight_gpu.palette.codec import PaletteCodec
from unweight_gpu.palette.format import PaletteOffsets

LARGE: Final = 17  # log2 of the words of a chunk of a file
SMALL: Final = 15  # of one that is decoded for every token: more of them, of less latency


def decoding(
    device: Device,
    timer: Timer,
    layer: Layer,
    cases: Sequence[tuple[str, int]],
    target: Target | None = None,
) -> Iterator[Figure]:
    """Decode a layer, coded with each preset and log2 of the words of a chunk.

    The target is for the preset ``default`` as it is used for files. What was decoded while it was
    timed is compared with the layer; raises IntegrityError.
    """
    decoder = Decoder(device)
    for preset, chunk_log2 in cases:
        found, spans = coded_layer(layer, preset, chunk_log2)
        size = f"{preset}, chunks of 2^{chunk_log2}, {described(found)}"
        aim = target if (preset, chunk_log2) == (DEFAULT, LARGE) else None
        rate = terabytes(found.nbytes, _timed(device, timer, decoder, found, spans, False))
        yield Figure("rANS to BF16", size, rate, "TB/s", target=aim)
        if preset != DEFAULT or any(palette_obstacle(s.model, s.directory) for s in spans):
            continue
        rate = terabytes(found.nbytes, _timed(device, timer, decoder, found, spans, True))
        yield Figure("rANS to palette", size, rate, "TB/s")


def described(layer: Layer) -> str:
    """Return the size and the name of a layer."""
    return f"{layer.weights / 1e6:.0f} M weights, {layer.name}"


def _timed(
    device: Device,
    timer: Timer,
    decoder: Decoder,
    layer: Layer,
    spans: Sequence[CodedSpan],
    as_palettes: bool,
) -> Sequence[float]:
    copies = [
        _Copy(device, decoder, spans, as_palettes=as_palettes)
        for _ in range(copies_of(layer.nbytes))
    ]
    seconds = timer.samples([copy.prepared.start for copy in copies])
    copies[-1].compare(layer)
    return seconds


class _Copy:
    """A coded layer on the device, and room for what it decodes to."""

    def __init__(
        self, device: Device, decoder: Decoder, spans: Sequence[CodedSpan], *, as_palettes: bool
    ) -> None:
        plan, builder = BufferPlan(), BatchBuilder()
        self._device = device
        self._palettes = list[PaletteOffsets]()
        coded_at = [plan.add(span.coded_bytes) for span in spans]
        data = np.zeros(plan.nbytes, np.uint8)
        for span, at in zip(spans, coded_at, strict=True):
            block = span.read(data[at : at + span.coded_bytes])
            if as_palettes:
                self._palettes.append(builder.add_as_palette(block, span.model, at))
            else:
                builder.add(block, span.model, at)
        batch = builder.build()
        self._out_at = batch.out_at
        self._out = device.empty(batch.out_bytes, np.uint8)
        self.prepared: LaunchPlan = decoder.prepare(batch, device.array(data), self._out)

    def compare(self, layer: Layer) -> None:
        """Raise IntegrityError unless the matrices of the layer were decoded."""
        verifier = Verifier(self._device)
        wrong = int(np.count_nonzero(self._device.to_host(self.prepared.status)))
        if wrong:
            raise IntegrityError(f"{layer.name}: {count(wrong, 'chunk')} not decoded")
        for number, (name, words) in enumerate(layer.matrices.items()):
            found = self._matrix(number, words.nbytes)
            if verifier.first_difference(found, self._device.array(words)) is not None:
                raise IntegrityError(f"{layer.name}: {name}: decoded to other words")

    def _matrix(self, number: int, nbytes: int) -> Array:
        if self._palettes:
            palette = self._palettes[number].palette(self._out)
            return PaletteCodec(self._device).expand(palette)
        at = self._out_at[number]
        return self._out[at : at + nbytes]
