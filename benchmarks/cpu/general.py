"""General-purpose compressors, which know nothing of weights: zstd and xz."""

import lzma
from collections.abc import Callable
from dataclasses import dataclass

import zstandard

from benchmarks.cpu.measure import Run, Stopwatch
from benchmarks.cpu.peers import wrong
from benchmarks.data.dataset import DataSet


@dataclass(frozen=True, slots=True)
class GeneralCoder:
    """A compressor on the bytes of all tensors at once."""

    name: str
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]

    def run(self, data: DataSet) -> Run:
        """Encode and decode."""
        source = data.joined()
        with Stopwatch() as encoding:
            coded = self.compress(source)
        with Stopwatch() as decoding:
            restored = self.decompress(coded)
        if restored != source:
            raise wrong(self.name, data)
        return Run(len(coded), encoding.seconds, decoding.seconds)

    def file_bytes(self, data: DataSet) -> None:
        """Return None: these are measured on bytes."""


def zstd(level: int) -> GeneralCoder:
    """Return zstd at a level."""
    return GeneralCoder(
        f"zstd -{level}",
        lambda data: zstandard.ZstdCompressor(level=level).compress(data),
        lambda data: zstandard.ZstdDecompressor().decompress(data),
    )


def xz(level: int) -> GeneralCoder:
    """Return xz at a level."""
    return GeneralCoder(
        f"xz -{level}", lambda data: lzma.compress(data, preset=level), lzma.decompress
    )
