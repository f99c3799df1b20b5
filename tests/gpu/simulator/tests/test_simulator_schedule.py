"""Threads and blocks run in an order that the seed decides, and races show."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.simulator import compiler
from tests.gpu.simulator.errors import CompileError
from tests.gpu.support.devices import Simulator

SEEDS = range(8)
SOURCE = r"""
extern "C" __global__ void reverse(unsigned* out, int with_barrier) {
    __shared__ unsigned values[128];
    values[threadIdx.x] = threadIdx.x;
    if (with_barrier) __syncthreads(); else __syncwarp();
    out[threadIdx.x] = values[127 - threadIdx.x];
}
extern "C" __global__ void neighbour(unsigned* out, int with_barrier) {
    __shared__ unsigned values[32];
    values[threadIdx.x] = threadIdx.x;
    if (with_barrier) __syncwarp();
    out[threadIdx.x] = values[threadIdx.x ^ 1];
}
extern "C" __global__ void tickets(unsigned* out, unsigned* counter) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counter, 1u);
}
extern "C" __global__ void coordinates(unsigned* out) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}
extern "C" __global__ void last_block(const unsigned* in, unsigned* partial, unsigned* counter,
                                      unsigned* sum) {
    __shared__ unsigned is_last;
    const unsigned mine = __reduce_add_sync(0xffffffffu, in[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = mine;
        __threadfence();
        is_last = atomicAdd(counter, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last) {
        unsigned part = 0;
        for (unsigned i = threadIdx.x; i < gridDim.x; i += 32) part += partial[i];
        part = __reduce_add_sync(0xffffffffu, part);
        if (threadIdx.x == 0) *sum = part;
    }
}
"""


def results(simulator: Simulator, name: str, threads: int, with_barrier: int) -> set[bytes]:
    """Return the distinct results over all seeds."""
    found = set()
    for seed in SEEDS:
        out = simulator.empty(threads, np.uint32)
        kernel = simulator.load(SOURCE, seed=seed).get_function(name)
        kernel((1,), (threads,), (out, np.int32(with_barrier)))
        found.add(simulator.to_host(out).tobytes())
    return found


@pytest.mark.parametrize(("name", "threads"), [("reverse", 128), ("neighbour", 32)])
def test_a_race_shows(simulator: Simulator, name: str, threads: int) -> None:
    assert len(results(simulator, name, threads, 1)) == 1
    assert len(results(simulator, name, threads, 0)) > 1


def tickets(simulator: Simulator, seed: int) -> NDArray[np.uint32]:
    out, counter = simulator.empty((20, 64), np.uint32), simulator.array(np.zeros(1, np.uint32))
    simulator.load(SOURCE, seed=seed).get_function("tickets")((20,), (64,), (out, counter))
    assert sorted(simulator.to_host(out).reshape(-1)) == list(range(20 * 64))
    return simulator.to_host(out)


def test_a_seed_is_an_order(simulator: Simulator) -> None:
    first, again, other = (tickets(simulator, seed) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first // 64, other // 64)  # of blocks
    assert not np.array_equal(first % 64, other % 64)  # of threads


@pytest.mark.parametrize(
    ("grid", "block"), [((3, 4, 5), (8, 2, 3)), ((7,), (33,)), ((2, 3), (1, 5))]
)
def test_coordinates(simulator: Simulator, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    out = simulator.empty((blocks, threads), np.uint32)
    simulator.load(SOURCE).get_function("coordinates")(grid, block, (out,))
    expected = 1000 * np.arange(blocks)[:, None] + np.arange(threads)
    assert np.array_equal(simulator.to_host(out), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_block_sums_up(simulator: Simulator, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 1000, 32 * 50, np.uint32)
    given, partial = simulator.array(values), simulator.empty(50, np.uint32)
    counter, total = simulator.array(np.zeros(1, np.uint32)), simulator.empty(1, np.uint32)
    kernel = simulator.load(SOURCE, seed=seed).get_function("last_block")
    kernel((50,), (32,), (given, partial, counter, total))
    assert int(simulator.to_host(total)[0]) == int(values.sum())


def test_fibers_of_the_c_library(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    portable = (*compiler.COMPILE_OPTIONS, "-DCUDA_ON_CPU_UCONTEXT")
    monkeypatch.setattr(compiler, "COMPILE_OPTIONS", portable)
    slow = Simulator(simulator.cache)
    assert len(results(slow, "reverse", 128, 1)) == 1
    tickets(slow, 0)


def test_sources(simulator: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "value.cu"
    path.write_text('extern "C" __global__ void value(int* out) { *out = VALUE; }\n')
    out = simulator.empty(1, np.int32)
    simulator.load(path, options=("-DVALUE=42",)).get_function("value")((1,), (1,), (out,))
    assert simulator.to_host(out).tolist() == [42]
    with pytest.raises(CompileError, match=r"value.cu:1:\d+: error: .*VALUE"):
        simulator.load(path)
    with pytest.raises(CompileError, match="options that the simulator does not know: -use_fast"):
        simulator.load(path, options=("-use_fast_math",))
