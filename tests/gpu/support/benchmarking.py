"""What tests of the benchmark of devices share: small matrices, a false clock, a peer."""

from collections.abc import Sequence

import numpy as np

from benchmarks.cpu.measure import Spread
from benchmarks.gpu.cases import Sizes
from benchmarks.gpu.figures import Figure
from tests.gpu.support.palette_model import narrowed, widened
from unweight_gpu.device.interface import Array, StreamingDevice
from unweight_gpu.device.timing import Work

DTYPES = ("BF16", "F32", "F64", "F8_E5M2", "I8")
TINY = Sizes(DTYPES, (96, 132), 12, ((64, 128), (24, 528)), 8192)
SHAPES = {"a": (64, 128), "b": (32, 256)}
COPY = Figure("device copy", "2048 MiB", Spread(4.3, 4.2, 4.4), "TB/s")


class FakeTimer:
    """Runs everything once, and takes the times from a list."""

    def samples(self, runs: Sequence[Work]) -> Sequence[float]:
        for run in runs[:2]:
            run()
        runs[-1]()
        return [2e-6, 1e-6, 4e-6]


class NumpyPeer:
    """Products in binary64, rounded once."""

    name = "NumPy"

    def __init__(self, device: StreamingDevice, error: float = 0.0) -> None:
        self._device, self._factor = device, 1 + error

    def product(self, words: Array, x: Array, out: Array) -> Work:
        def run() -> None:
            left, right = (widened(self._device.to_host(each)) for each in (x, words))
            exact = left.astype(np.float64) @ right.astype(np.float64).T
            out[...] = self._device.array(narrowed(exact * self._factor))

        return run
