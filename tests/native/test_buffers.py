"""Recycled memory: never handed out again while somebody still looks at it."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import Bytes

SIZES = (0, 1, buffers.SMALL - 1, buffers.SMALL, 100_003, 1 << 20)


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: int) -> None:
    buffer = buffers.empty(size)
    assert buffer.shape == (size,)
    assert buffer.dtype == np.uint8
    assert buffer.flags.c_contiguous
    assert buffer.flags.writeable


def address(buffer: Bytes) -> int:
    return int(buffer.ctypes.data)


def test_a_buffer_that_is_gone_is_used_again() -> None:
    first = buffers.empty(1 << 20)
    place = address(first)
    del first
    gc.collect()
    others = [buffers.empty(1 << 20) for _ in range(16)]
    assert place in map(address, others)


@pytest.mark.parametrize(
    "view",
    [lambda b: b[10:], lambda b: b.view("<u4"), lambda b: b.reshape(2, -1)[1], memoryview],
    ids=["slice", "dtype", "row", "memoryview"],
)
def test_a_buffer_lives_as_long_as_its_views(view: object) -> None:
    buffer = buffers.empty(1 << 20)
    place = address(buffer)
    kept = view(buffer)  # type: ignore[operator]
    del buffer
    gc.collect()
    others = [buffers.empty(1 << 20) for _ in range(16)]
    assert place not in map(address, others)
    del kept


def test_threads_never_share_a_buffer() -> None:
    def work(mark: int) -> bool:
        for _ in range(200):
            buffer = buffers.empty(1 << 17)
            buffer[:] = mark
            if not (buffer == mark).all():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
