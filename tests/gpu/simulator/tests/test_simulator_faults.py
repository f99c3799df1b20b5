"""The simulator notices what CUDA forbids or leaves undefined, and says where."""

import numpy as np
import pytest

from tests.gpu.simulator.errors import KernelFault, LaunchError
from tests.gpu.simulator.module import Limits, Module
from tests.gpu.support.devices import Array, Simulator

ALL = "0xffffffff"

# Name, body, and what the fault says. A block is 64 threads. `out` has 64 elements; `in`, which is
# constant, has 61, and 12 bytes more are left behind its end.
FAULTS = {
    "divergent_barrier": (
        "if (i < 32) __syncthreads();\nelse __syncthreads();",
        r"kernel.cu:2.*divergent barrier: .* __syncthreads, others wait at .* in line \d",
    ),
    "barrier_and_collective": (
        f"if (i < 20) __syncthreads(); else if (i < 32) __ballot_sync({ALL}, 1);",
        r"deadlock: 32 of 64 threads have exited, 20 at __syncthreads in line \d+, "
        r"12 at __ballot_sync\(0xffffffff\) in line",
    ),
    "exits_before_collective": (
        f"if (i == 5) return; __syncwarp(0xffffffdf); __ballot_sync({ALL}, 1);",
        r"lane 5.*exit|exit.*lane 5",
    ),
    "exits_during_collective": (
        f"if (i == 5) {{ __syncwarp(0x20); return; }} __ballot_sync({ALL}, 1);",
        r"lane 5.*exit|exit.*lane 5",
    ),
    "different_collectives": (
        f"out[i] = i & 1 ? __any_sync({ALL}, 1) : __all_sync({ALL}, 1);",
        r"lanes of mask 0xffffffff diverge: .*__a(ny|ll)_sync, lane \d+ at __a(ny|ll)_sync",
    ),
    "different_places": (
        f"if (i & 1) __syncwarp({ALL});\nelse __syncwarp({ALL});",
        "lanes of mask 0xffffffff diverge",
    ),
    "different_masks": (
        f"if (i & 1) __syncwarp({ALL}); else __syncwarp(0x55555557);",
        r"deadlock: .* 32 at __syncwarp\(0x(ffffffff|55555557)\) in line 1, 32 at __syncwarp",
    ),
    "lane_not_in_mask": (
        "if (i < 32) out[i] = __ballot_sync(0x7fffffff, 1);",
        "mask 0x7fffffff does not name the calling lane 31",
    ),
    "source_not_in_mask": (
        "if (i < 16) out[i] = __shfl_sync(0xffff, i, 20);",
        "reads lane 20, which mask 0x0000ffff does not name",
    ),
    "bad_width": ("out[i] = __shfl_sync(0xffffffff, i, 0, 12);", "width 12 is no power of two"),
    "write_behind": (
        "out[i + 1] = 1;",
        r"thread \(63, 0, 0\): invalid write, 0 bytes behind the end of argument 1, which has 256",
    ),
    "read_before": (
        "out[i] = out[(int)i - 1030];",
        r"invalid read, \d+ bytes before the start of argument 1",
    ),
    "read_far_behind": ("out[i] = in[i + 80];", r"\d+ bytes behind the end of argument 2"),
    "write_shortly_behind": (
        "((int*)in)[61] = 1;",
        "invalid write, 0 bytes behind the end of argument 2",
    ),
    "write_constant": ("((int*)in)[i] = 1;", "invalid write, byte .* of argument 2, .* read only"),
    "write_shortly_before": ("out[-1] = 1;", "wrote next to a buffer of 256 bytes"),
    "null": ("out = 0; out[i] = 1;", "address 0x.*, which is in no buffer"),
    "misaligned": (
        "((uint4*)out)[0] = *(uint4*)(out + 1);",
        r"kernel.cu:\d+: .*misaligned address .* for type .*uint4.*, which needs a multiple of 16",
    ),
    "misaligned_atomic": ("atomicAdd((int*)((char*)out + 2), 1);", "misaligned address"),
    "shift_by_width": ("out[i] = 1u << (i + 1);", "shift count 32"),
    "shift_by_negative": ("out[i] = 1u >> ((int)i - 63);", "shift count -[0-9]+"),
    "array_index": (
        "int a[4] = {}; a[i & 7] = i; out[i] = a[0];",
        "index [4-7] is out of the bounds",
    ),
    "shared_index": (
        "__shared__ int a[32]; a[i] = i; __syncthreads(); out[i] = a[0];",
        r"index \d+ is out of the bounds",
    ),
    "dynamic_shared_end": (
        "extern __shared__ int a[]; a[i + 1] = i;",
        "invalid write, 0 bytes behind the end of dynamic shared memory",
    ),
    "division_by_zero": ("out[i] = 1000u / (i - 7);", "division by zero"),
    "float_to_integer": ("out[i] = (int)(1e10f * i);", "number out of the range of the integer"),
    "endless": ("while (((volatile int*)out)[0] != 7) {}", "an endless loop"),
    "recursion": ("out[i] = depth(i + 1000000);", "invalid"),
    "trap": ("if (i == 9) __trap();", r"thread \(9, 0, 0\): __trap"),
}
HEAD = """
__device__ __noinline__ int depth(int n) {
    volatile int a[64];
    a[n & 63] = n;
    return n ? depth(n - 1) + a[n & 63] : 0;
}
"""


OTHERS = r"""
struct Pair { int* data; unsigned count; };
template <class T> __device__ T* scratch() { __shared__ T space[64]; return space; }
extern "C" __global__ void __launch_bounds__((2 * 16) * 2, 1) fill(Pair pair,
                                                                      unsigned long long* sum) {
    if (threadIdx.x <= pair.count) pair.data[threadIdx.x] = threadIdx.x;
    unsigned* words = scratch<unsigned>();
    if (threadIdx.x == 0) atomicAdd(sum, (unsigned long long)words[0]);
    __syncthreads();
    words[0] = 5;
}
extern "C" __global__ void fixed(unsigned* out) {
    __shared__ unsigned large[11 * 1024];
    for (unsigned i = threadIdx.x; i < 11 * 1024; i += blockDim.x) large[i] = i;
    extern __shared__ __align__(16) unsigned more[];
    more[threadIdx.x] = large[threadIdx.x];
    out[threadIdx.x] = more[threadIdx.x];
}
#define KERNEL(NAME, TYPE) extern "C" __global__ void NAME(TYPE* out, TYPE value) { *out = value; }
KERNEL(put_float, float)
KERNEL(put_byte, unsigned char)
KERNEL(put_long, long long)
extern "C" __global__ void look(const int *in, int *out) { out[0] = in[-1]; }
extern "C" __global__ void twice(const int* in, int* out) { out[0] = in[0] + 1; }
extern "C" __global__ void at(unsigned char* p, int i) { p[i] = 1; }
"""
# One text for all tests: compiling it takes little longer than compiling one of its kernels.
SOURCE = "".join(
    (
        HEAD,
        OTHERS,
        *(
            f'\nextern "C" __global__ void {name}(int* out, const int* in) {{\n'
            f"#line 1\nunsigned i = threadIdx.x; {body} }}"
            for name, (body, _) in FAULTS.items()
        ),
    )
)


@pytest.fixture(scope="module")
def compiled(simulator: Simulator) -> Module:
    return simulator.load(SOURCE)


@pytest.fixture(scope="module")
def faulty(simulator: Simulator) -> Module:
    """Return the same with little patience."""
    return Simulator(simulator.cache, Limits(processor_seconds=1)).load(SOURCE)


@pytest.mark.parametrize("name", FAULTS)
def test_fault(simulator: Simulator, faulty: Module, name: str) -> None:
    out = simulator.array(np.zeros(64, np.int32))
    constant = simulator.array(np.zeros(61, np.int32))
    with pytest.raises(KernelFault, match=f"^{name}: .*({FAULTS[name][1]})"):
        faulty.get_function(name)((1,), (64,), (out, constant), 256)


def test_reads_shortly_before_an_array_that_begins_behind_a_guard(
    simulator: Simulator, compiled: Module
) -> None:
    look = compiled.get_function("look")
    out = simulator.empty(1, np.int32)
    look((1,), (1,), (simulator.empty(5, np.int32), out))  # the same page: nothing to be seen
    data = simulator.empty(5, np.int32, at_start=True)
    with pytest.raises(KernelFault, match="invalid read, 4 bytes before the start of argument 1"):
        look((1,), (1,), (data, out))


def test_writes_before_a_fault_remain(simulator: Simulator, faulty: Module) -> None:
    out = simulator.array(np.zeros(64, np.int32))
    with pytest.raises(KernelFault):
        faulty.get_function("write_behind")((1,), (64,), (out, out), 256)
    assert simulator.to_host(out).any()


def test_constant_buffer_that_is_also_output(simulator: Simulator, compiled: Module) -> None:
    values = simulator.array(np.zeros(4, np.int32))
    compiled.get_function("twice")((1,), (1,), (values, values))
    assert simulator.to_host(values).tolist() == [1, 0, 0, 0]


PAIR = np.dtype([("data", np.uint64), ("count", np.uint32)], align=True)


def pair_of(simulator: Simulator, data: Array, count: int) -> np.void:
    pairs = np.array([(simulator.address(data), count)], PAIR)
    assert isinstance(pairs[0], np.void)
    return pairs[0]


def test_pointers_in_compiled(simulator: Simulator, compiled: Module) -> None:
    data, sum_ = simulator.empty(64, np.int32), simulator.array(np.zeros(1, np.uint64))
    fill = compiled.get_function("fill")
    fill((3,), (64,), (pair_of(simulator, data, 63), sum_))
    assert simulator.to_host(data).tolist() == list(range(64))
    assert int(simulator.to_host(sum_)[0]) == 3 * 0xCDCDCDCD  # every block starts with poison
    short = simulator.empty(32, np.int32)
    with pytest.raises(KernelFault, match="behind the end of a buffer, which has 128 bytes"):
        fill((1,), (64,), (pair_of(simulator, short, 32), sum_))


def test_shared_memory_is_limited(simulator: Simulator, compiled: Module) -> None:
    out = simulator.empty(64, np.uint32)
    fixed = compiled.get_function("fixed")
    fixed((2,), (64,), (out,), 1024)
    with pytest.raises(KernelFault, match=r"shared memory: \d+ bytes static and 8192 dynamic"):
        fixed((2,), (64,), (out,), 8192)
    with pytest.raises(LaunchError, match="49153 bytes of shared memory, the limit is 49152"):
        fixed((2,), (64,), (out,), 49153)
    fixed.max_dynamic_shared_size_bytes = 100_000
    fixed((2,), (64,), (out,), 100_000)
    fixed.max_dynamic_shared_size_bytes = 1 << 20
    with pytest.raises(LaunchError, match="the limit is 232448"):
        fixed((2,), (64,), (out,), 300_000)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("put_float", lambda a: (a,), "1 arguments for 2 parameters"),
        ("put_float", lambda a: (a, np.float64(1)), "argument 2 is float64, .* float32"),
        ("put_float", lambda a: (a, 1.0), "argument 2 is float, the kernel takes float32"),
        ("put_long", lambda a: (a.view(np.int64), np.uint64(1)), "is uint64, .* int64"),
        ("put_long", lambda a: (a, np.int64(1)), "an array of float32, .* a pointer to int64"),
        ("put_float", lambda a: (a[::2], np.float32(1)), "argument 1 .* not contiguous"),
        ("put_float", lambda a: (a.copy(), np.float32(1)), "argument 1 is not in device memory"),
        # CuPy takes None for the address of a parameter, not for a null pointer.
        ("put_float", lambda a: (None, np.float32(1)), "argument 1 is NoneType, .* a pointer"),
        ("put_float", lambda a: (7, np.float32(1)), "argument 1 is int, .* a pointer to float32"),
        ("fill", lambda a: (np.uint64(1), a), "argument 1 is uint64, .* a structure of 16 bytes"),
    ],
)
def test_arguments_must_fit(
    simulator: Simulator, compiled: Module, name: str, wrong: object, message: str
) -> None:
    assert callable(wrong)
    arguments = wrong(simulator.array(np.zeros(16, np.float32)))
    with pytest.raises(LaunchError, match=message):
        compiled.get_function(name)((1,), (1,), arguments)


def test_bytes_fit_every_pointer(simulator: Simulator, compiled: Module) -> None:
    raw, words = simulator.empty(8, np.uint8), simulator.empty(2, np.uint32)
    compiled.get_function("put_long")((1,), (1,), (raw, np.int64(-2)))
    compiled.get_function("put_byte")((1,), (1,), (words[1:], np.uint8(7)))
    assert simulator.to_host(raw).view(np.int64).tolist() == [-2]
    assert simulator.to_host(words).tolist() == [0xCDCDCDCD, 0xCDCDCD07]


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((1,), (65,), "65 threads in a block, at most 64"),
        ((1,), (0,), r"block \(0,\)"),
        ((1,), (1, 1, 65), r"block \(1, 1, 65\)"),
        ((1, 70_000), (1,), r"grid \(1, 70000\)"),
        ((1, 1, 1, 1), (1,), r"grid \(1, 1, 1, 1\)"),
    ],
)
def test_extents_must_fit(
    compiled: Module, grid: tuple[int, ...], block: tuple[int, ...], message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        compiled.get_function("fill")(grid, block, ())


def test_an_unknown_kernel(compiled: Module) -> None:
    with pytest.raises(LaunchError, match="there is no kernel scratch"):
        compiled.get_function("scratch")


@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 4096, 5000])
@pytest.mark.parametrize("alignment", [1, 4, 16, 256])
def test_arrays_are_aligned(
    simulator: Simulator, compiled: Module, size: int, alignment: int
) -> None:
    array = simulator.empty(size, np.uint8, alignment=alignment)
    assert simulator.address(array) % alignment == 0
    assert (simulator.to_host(array) == 0xCD).all()
    at = compiled.get_function("at")
    for place in (-1, size + alignment - 1):  # beyond what alignment leaves behind the end
        with pytest.raises(KernelFault):
            at((1,), (1,), (array, np.int32(place)))
