"""Whole files to the device: compressed ones, and plain ones through pinned memory the same way."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.data.dataset import write_safetensors
from benchmarks.gpu.data import Layer
from benchmarks.gpu.figures import Figure, Target, gigabytes
from unweight.containers.base import FileSource
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.progress import NoProgress
from unweight.units import size
from unweight_gpu.decoding.overlap import overlapped
from unweight_gpu.decoding.transfer import StagingBuffer
from unweight_gpu.device.interface import Array, StreamingDevice
from unweight_gpu.device_tensors import RESIDENT_BYTES, load

ROUNDS: Final = 5
_STAGING_BUFFERS: Final = 2


def write_layers(folder: Path, layer: Layer, copies: int) -> Path:
    """Write a model of some layers, all with the same weights, as a safetensors file."""
    path = folder / "layers.safetensors"
    write_safetensors(path, layer.tensors(copies))
    return path


def loading(
    device: StreamingDevice,
    source: Path,
    folder: Path,
    target: Target | None = None,
    rounds: int = ROUNDS,
    batch_bytes: int = RESIDENT_BYTES,
) -> Iterator[Figure]:
    """Load a file that lies in the page cache, compressed and not, in turns, by the clock.

    Loading includes all checksums and digests. The target is for words. A round before the first
    warms up.
    """
    compressed = folder / "compressed"
    compress(source, compressed, CompressOptions(force=True), NoProgress())
    ways: dict[str, Callable[[], object]] = {
        "copy": lambda: list(copied(device, source, batch_bytes)),
        "load": lambda: list(load(compressed, device, batch_bytes=batch_bytes)),
        "load as palettes": lambda: list(
            load(compressed, device, palettes=True, batch_bytes=batch_bytes)
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            if number:
                seconds[name].append(time.perf_counter() - begin)
    nbytes, coded = source.stat().st_size, compressed.stat().st_size
    what = f"{size(nbytes)}, compressed {size(coded)}, in the page cache"
    plain = gigabytes(nbytes, seconds["copy"])
    for name in ("load", "load as palettes"):
        rate = gigabytes(nbytes, seconds[name])
        aim = target if name == "load" else None
        yield Figure(name, what, rate, "GB/s", "copy of the uncompressed file", plain, aim)


def copied(
    device: StreamingDevice, path: Path, batch_bytes: int = RESIDENT_BYTES
) -> Iterator[Array]:
    """Yield a file in pieces as they arrive in device memory, with the next one being read."""
    total = path.stat().st_size
    with FileSource(path) as file:

        def start(buffer: StagingBuffer, at: int) -> tuple[StagingBuffer, Array]:
            pinned = buffer.pinned("file", min(batch_bytes, total - at))
            file.read_into(at, pinned.data)
            with buffer.queue.current():
                target = device.empty(pinned.size, np.uint8)
                device.upload(pinned, target)
            return buffer, target

        def finish(started: tuple[StagingBuffer, Array]) -> Iterator[Array]:
            buffer, target = started
            buffer.queue.wait()
            yield target

        buffers = [StagingBuffer(device) for _ in range(_STAGING_BUFFERS)]
        yield from overlapped(buffers, range(0, total, batch_bytes), start, finish)
        for buffer in buffers:
            buffer.free()
