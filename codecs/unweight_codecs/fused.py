"""Native kernels that do the work of several stages in one pass over the words.

The stages define the result; these give the same streams faster. Parity is tested for every dtype.
"""

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.codec import Block, Model
from unweight_codecs.entropy.segments import RANS, RAW
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.native import CHUNK16, NativeKernels


def split(block: Block, model: Model, native: NativeKernels) -> None:
    """Do what ``outlier`` and ``grid`` do: words → symbols, planes, top and escapes."""
    form = model.form
    if form.word_bytes == 2 and "top" not in model.coders:
        parts = native.split16(block.words, block.count, model.chunk_words, form)
        if parts:
            symbols, low, top, block.streams["escape"], block.escape_counts = parts
            block.streams["symbol"] = symbols
            if form.raw_bits >= 8:
                block.streams["plane0"] = low
            if form.raw_bits % 8:
                block.packed["top"] = top
            return
    symbols, planes, top = native.split(block.words, block.count, form)
    block.streams["symbol"] = symbols
    for k, plane in enumerate(planes):
        block.streams[f"plane{k}"] = plane
    if top.size:
        block.streams["top"] = top
    block.streams["escape"] = native.collect_escapes(block.words, symbols, block.count, form)


def join(block: Block, model: Model, native: NativeKernels) -> None:
    """Undo ``split``."""
    form = model.form
    number = form.raw_bits // 8
    planes = buffers.empty(number * block.count).reshape(number, block.count)
    for k in range(number):
        planes[k] = block.streams[f"plane{k}"]
    top = np.ascontiguousarray(block.streams.get("top", np.zeros(0, np.uint8)))
    symbols = block.streams["symbol"]
    native.join(symbols, planes, top, block.count, form, block.words)
    native.patch(symbols, block.count, form, block.streams["escape"], block.words)


def decode16(block: Block, model: Model, located: NDArray[np.void], native: NativeKernels) -> bool:
    """Decode a block of 16-bit floats in one pass; False when some chunk needs the general way."""
    form = model.form
    tables = model.classes.tables if model.classes else model.tables.get("symbol")
    streams = list(model.streams())
    if form.word_bytes != 2 or tables is None:
        return False
    raw = [streams.index(name) for name in streams if name.startswith("plane") or name == "top"]
    if np.any(located["coder"][:, 0] != RANS) or np.any(located["coder"][:, 1:] != RAW):
        return False
    for k in raw:
        bits = model.streams()[streams[k]]
        if np.any(located["length"][:, k] != (located["count"][:, k] * bits + 7) // 8):
            raise IntegrityError("a raw segment has a wrong length")
    chunks = np.zeros(len(located), CHUNK16)
    for name in ("offset", "length", "table", "count"):
        chunks["symbol"][name] = located[name][:, 0]
    chunks["symbol"]["start"] = np.arange(len(located)) * model.chunk_words
    for position, k in enumerate(raw):
        chunks["plane"][:, position] = located["offset"][:, k]
        chunks["plane_length"][:, position] = located["length"][:, k]
    chunks["escape"] = located["offset"][:, -1]
    chunks["escape_count"] = located["length"][:, -1]
    words = block.words.view("<u2")
    return native.decode16(block.coded, chunks, tables, block.streams.get("class"), form, words)
