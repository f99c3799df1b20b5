"""Tensors coded in memory, and decoded on a device without an engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tests.gpu.seeded import Seeded
from unweight_codecs.codec import Block, Model
from unweight_codecs.kernels.base import Bytes
from unweight_codecs.layouts import layout_of
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.stages.bound import Bound
from unweight_codecs.stages.grid import Grid
from unweight_codecs.stages.outlier import Outlier
from unweight_codecs.stages.pack import Pack
from unweight_codecs.stages.tile_svd import TileSvd
from unweight_codecs.survey import survey
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.batch import Batch, BatchBuilder
from unweight_gpu.decoder import Decoder
from unweight_gpu.tensors import Places

SPAN_CHUNKS = 2  # so that tensors of a few chunks have several blocks


@dataclass(frozen=True, slots=True)
class Coded:
    """A coded tensor: the model as a decoder has it, and its blocks without words."""

    model: Model
    pipeline: Pipeline
    blocks: tuple[Block, ...]

    def on_host(self) -> Bytes:
        """Decode on the processor."""
        return np.concatenate([self._decoded(block) for block in self.blocks])

    def _decoded(self, block: Block) -> Bytes:
        size = block.count * self.model.layout.word_bytes
        copy = replace(block, words=np.zeros(size, np.uint8), streams={})
        self.pipeline.decode(copy, self.model)
        return copy.words


def lossless(
    top_bits: int = 0, classes: int = 1, chunk_log2: int = 12, tables: int = 4
) -> Pipeline:
    """Return a pipeline with m and K given."""
    stages = (
        Outlier(),
        Grid(mantissa_bits=top_bits, tables=tables),
        TileSvd(classes),
        Bound(),
        Pack(chunk_log2),
    )
    return pipeline_of("test", stages)


def code(pipeline: Pipeline, spec: TensorSpec, data: Bytes, epsilon: float = 0.0) -> Coded:
    """Code a tensor, even when it does not shrink."""
    layout = layout_of(spec)
    size = layout.word_bytes

    def read(first: int, count: int) -> Bytes:
        return data[first * size : (first + count) * size]

    view, _ = survey(spec, read, pipeline.chunk_words(layout), lambda words: None)
    model = pipeline.fit(view, epsilon)
    blocks = []
    step = SPAN_CHUNKS * model.chunk_words
    for first in range(0, layout.words, step):
        block = Block(first, min(step, layout.words - first), read(first, step))
        pipeline.encode(block, model)
        blocks.append(
            Block(block.first_word, block.count, coded=block.coded, directory=block.directory)
        )
    return Coded(pipeline.as_decoded(model), pipeline, tuple(blocks))


def decode(
    device: Seeded, coded: Coded, change: Callable[[Batch, Bytes], Batch] = lambda batch, _: batch
) -> tuple[Bytes, NDArray[np.uint32]]:
    """Return the words that a device decodes, and the status of every chunk.

    ``change`` may damage the description of the batch, or the coded bytes.
    """
    places, builder = Places(), BatchBuilder()
    parts = list[Bytes]()
    for block in coded.blocks:
        builder.add(block, coded.model, places.add(block.coded.size))
        parts += [block.coded, np.zeros(places.end - sum(map(len, parts)) - block.coded.size, "u1")]
    data = np.concatenate(parts)
    batch = change(builder.build(), data)
    out = device.empty(batch.out_bytes, np.uint8)
    status = device.to_host(Decoder(device).launch(batch, device.array(data), out))
    words = device.to_host(out)
    sizes = [block.count * coded.model.layout.word_bytes for block in coded.blocks]
    spans = zip(batch.out_at, sizes, strict=True)
    return np.concatenate([words[at : at + size] for at, size in spans]), status
