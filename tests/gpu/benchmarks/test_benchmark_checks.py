"""What the benchmark of devices compares: every kernel, in the simulator, on small matrices."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.gpu.cases import Cases, Line
from benchmarks.gpu.check_decoding import real
from benchmarks.gpu.checks import GROUPS, groups
from benchmarks.gpu.data import Layer
from tests.gpu.support.benchmarking import TINY
from tests.gpu.support.devices import Device
from tests.gpu.support.streaming import Streaming
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes
from unweight_gpu.device.interface import Array, StreamingDevice

LARGE = 8000  # bytes: more than what describes a batch, less than what is decoded


@pytest.mark.parametrize("name", GROUPS)
def test_kernels_are_compared(streaming: StreamingDevice, name: str) -> None:
    line = dict(groups(streaming, TINY))[name]()
    assert line.name == name
    assert line.cases >= 6
    assert not line.stored


def test_real_weights_are_compared(streaming: StreamingDevice, layer: Layer) -> None:
    assert real(streaming, layer) == Line("real weights: random", 2)


def test_a_difference_is_told() -> None:
    cases = Cases("decoding")
    cases.equal("the same", np.array([np.nan, -0.0]), np.array([np.nan, -0.0]))
    with pytest.raises(IntegrityError, match="decoding: zeros, byte 7: the device differs"):
        cases.equal("zeros", np.array([0.0, 0.0]), np.array([-0.0, 0.0]))
    with pytest.raises(IntegrityError, match="shapes: the device differs"):
        cases.equal("shapes", np.zeros(2), np.zeros(3))
    assert str(cases.line()) == "decoding: 1 cases, ok"


@pytest.mark.parametrize("name", [name for name in GROUPS if name != "damaged chunks"])
def test_a_wrong_bit_is_noticed(device: Device, name: str) -> None:
    if device.name == "cupy":
        pytest.skip("only the simulator can be made wrong")
    with pytest.raises(IntegrityError, match=f"^{name}: .* the device differs"):
        dict(groups(Wrong(device), TINY))[name]()


def test_a_chunk_that_is_not_refused_is_noticed(
    streaming: StreamingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu.check_decoding._damaging", lambda span, _: span.read)
    with pytest.raises(IntegrityError, match="damaged chunks: fast: the chunks that are refused"):
        dict(groups(streaming, TINY))["damaged chunks"]()


class Wrong(Streaming):
    """Changes a bit of every large array on the way to the device, and of words on the way back."""

    def array(self, values: NDArray[Any]) -> Array:
        return super().array(_flipped(values))

    def download(self, source: Array, target: Bytes) -> None:
        target[...] = _flipped(source)


def _flipped(values: NDArray[Any]) -> NDArray[Any]:
    copy = values.copy()
    if copy.nbytes >= LARGE:
        copy.reshape(-1).view(np.uint8)[copy.nbytes // 2] ^= 1
    return copy
