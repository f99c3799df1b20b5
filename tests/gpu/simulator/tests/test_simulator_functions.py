"""Device functions have the results that a GPU gives; if there is one it takes the same tests."""

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.support.devices import Device

ALL = 0xFFFFFFFF
RNG = np.random.default_rng(0)
LANES = np.arange(32, dtype=np.uint32)

Words = NDArray[np.uint32]
Collective = Callable[[Words, Words], int | list[int]]
OnIntegers = Callable[[int, int, int], int]


def bits(lanes: Words) -> int:
    return sum(1 << int(lane) for lane in lanes)


# Collectives: the expression of a lane's result. `m` is the mask, `x` the lane's value.
COLLECTIVES: dict[str, Collective] = {
    "__ballot_sync(m, x & 1)": lambda x, lanes: bits(lanes[x[lanes] & 1 == 1]),
    "__any_sync(m, x % 7 == 0)": lambda x, lanes: int((x[lanes] % 7 == 0).any()),
    "__all_sync(m, x % 7 != 0)": lambda x, lanes: int((x[lanes] % 7 != 0).all()),
    "__reduce_add_sync(m, x)": lambda x, lanes: int(x[lanes].sum(dtype=np.uint32)),
    "__reduce_min_sync(m, x)": lambda x, lanes: int(x[lanes].min()),
    "__reduce_max_sync(m, x)": lambda x, lanes: int(x[lanes].max()),
    "__reduce_min_sync(m, (int)x)": lambda x, lanes: int(x[lanes].view(np.int32).min()) & ALL,
    "__reduce_max_sync(m, (int)x)": lambda x, lanes: int(x[lanes].view(np.int32).max()) & ALL,
    "__reduce_and_sync(m, x)": lambda x, lanes: int(np.bitwise_and.reduce(x[lanes])),
    "__reduce_or_sync(m, x)": lambda x, lanes: int(np.bitwise_or.reduce(x[lanes])),
    "__reduce_xor_sync(m, x)": lambda x, lanes: int(np.bitwise_xor.reduce(x[lanes])),
    "__match_any_sync(m, x % 3)": lambda x, lanes: [
        bits(lanes[x[lanes] % 3 == x[lane] % 3]) for lane in lanes
    ],
}


def kernel(name: str, parameters: str, body: str) -> str:
    return f'extern "C" __global__ void {name}({parameters}) {{\n{body}\n}}\n'


def collective_source() -> str:
    stores = "\n".join(
        f"out[{i} * 32 + i] = {expression};" for i, expression in enumerate(COLLECTIVES)
    )
    body = f"unsigned i = threadIdx.x, x = in[i], m = mask >> i & 1 ? mask : ~mask;\n{stores}"
    return kernel("collectives", "const unsigned* in, unsigned* out, unsigned mask", body)


@pytest.mark.parametrize("mask", [ALL, 0x0000FFFF, 0x55555555, 1, 0x80C0301F])
def test_collectives(device: Device, mask: int) -> None:
    values = RNG.integers(0, 1 << 32, 32, np.uint32)
    given, out = device.array(values), device.empty((len(COLLECTIVES), 32), np.uint32)
    collectives = device.load(all_kernels(), seed=mask).get_function("collectives")
    collectives((1,), (32,), (given, out, np.uint32(mask)))
    found = device.to_host(out)
    for row, (expression, expected) in zip(found, COLLECTIVES.items(), strict=True):
        for part in (mask, ~mask & ALL):
            lanes = LANES[[part >> lane & 1 == 1 for lane in range(32)]]
            if lanes.size:
                result = expected(values, lanes)
                each = result if isinstance(result, list) else [result] * lanes.size
                assert row[lanes].tolist() == each, expression


SHUFFLES = kernel(
    "shuffles",
    "const unsigned long long* in, unsigned long long* out, int by, int width",
    """int i = threadIdx.x;
    out[i] = __shfl_sync(0xffffffff, in[i], by, width);
    out[32 + i] = __shfl_up_sync(0xffffffff, in[i], by, width);
    out[64 + i] = __shfl_down_sync(0xffffffff, in[i], by, width);
    out[96 + i] = __shfl_xor_sync(0xffffffff, in[i], by, width);
    float f = __shfl_sync(0xffffffff, (float)i, i + 1);
    out[128 + i] = (unsigned long long)f;""",
)


@pytest.mark.parametrize("width", [1, 2, 8, 32])
@pytest.mark.parametrize("by", [0, 1, 3, 17, 31])
def test_shuffles(device: Device, width: int, by: int) -> None:
    values = RNG.integers(0, 1 << 63, 32, np.uint64)
    given, out = device.array(values), device.empty((5, 32), np.uint64)
    shuffles = device.load(all_kernels(), seed=by).get_function("shuffles")
    shuffles((1,), (32,), (given, out, np.int32(by), np.int32(width)))
    lane = np.arange(32)
    first, last = lane // width * width, lane // width * width + width - 1
    sources = (
        first + by % width,
        np.where(lane - by >= first, lane - by, lane),
        np.where(lane + by <= last, lane + by, lane),
        np.where(lane ^ by <= last, lane ^ by, lane),
    )
    found = device.to_host(out)
    for row, source in zip(found, sources, strict=False):
        assert np.array_equal(row, values[source])
    assert np.array_equal(found[4], (lane + 1) % 32)


VOTES = kernel(
    "votes",
    "unsigned* out",
    """unsigned i = threadIdx.x;
    if (i >= 90) return;
    out[i] = __syncthreads_count(i % 3 == 0);
    out[96 + i] = __syncthreads_or(i == 71);
    out[192 + i] = __syncthreads_and(i != 71);
    out[288 + i] = __syncthreads_and(1) + 2 * __syncthreads_or(0);""",
)


def test_barriers_that_vote(device: Device) -> None:
    out = device.empty((4, 96), np.uint32)
    votes = device.load(all_kernels()).get_function("votes")
    votes((1,), (96,), (out,))
    assert [set(row.tolist()) for row in device.to_host(out)[:, :90]] == [{30}, {1}, {0}, {1}]


PARTIAL = kernel(
    "partial",
    "unsigned* out",
    "out[threadIdx.x] = __ballot_sync(0xffffffff, 1) + __reduce_add_sync(0xffffffff, 1u);",
)


def test_a_partial_warp(device: Device) -> None:
    out = device.empty(37, np.uint32)
    if device.name != "simulator":
        pytest.skip("a GPU may wait for lanes that do not exist")
    partial = device.load(all_kernels()).get_function("partial")
    partial((1,), (37,), (out,))
    assert device.to_host(out).tolist() == [(ALL + 32) & ALL] * 32 + [31 + 5] * 5


def signed(x: int, width: int = 32) -> int:
    return x - (1 << width) if x >> (width - 1) else x


def byte_perm(x: int, y: int, selectors: int) -> int:
    source, result = (y << 32 | x).to_bytes(8, "little"), []
    for i in range(4):
        selector = selectors >> 4 * i & 15
        byte = source[selector & 7]
        result.append((255 if byte & 128 else 0) if selector & 8 else byte)
    return int.from_bytes(bytes(result), "little")


def dot(x: int, y: int, z: int, *, is_signed: bool) -> int:
    parts = zip(x.to_bytes(4, "little"), y.to_bytes(4, "little"), strict=True)
    width = 8 if is_signed else 9
    return z + sum(signed(a, width) * signed(b, width) for a, b in parts)


# Functions of integers: of 32-bit x, y and z, and q = y:x.
INTEGERS: dict[str, OnIntegers] = {
    "__popc(x)": lambda x, y, z: x.bit_count(),
    "__popcll(q)": lambda x, y, z: (y << 32 | x).bit_count(),
    "__clz(x)": lambda x, y, z: 32 - x.bit_length(),
    "__clzll(q)": lambda x, y, z: 64 - (y << 32 | x).bit_length(),
    "__ffs(x)": lambda x, y, z: (x & -x).bit_length(),
    "__ffsll(q)": lambda x, y, z: ((y << 32 | x) & -(y << 32 | x)).bit_length(),
    "__brev(x)": lambda x, y, z: int(f"{x:032b}"[::-1], 2),
    "__brevll(q)": lambda x, y, z: int(f"{y << 32 | x:064b}"[::-1], 2),
    "__byte_perm(x, y, z)": byte_perm,
    "__funnelshift_l(x, y, z)": lambda x, y, z: ((y << 32 | x) << (z & 31)) >> 32 & ALL,
    "__funnelshift_r(x, y, z)": lambda x, y, z: (y << 32 | x) >> (z & 31) & ALL,
    "__funnelshift_lc(x, y, z)": lambda x, y, z: ((y << 32 | x) << min(z, 32)) >> 32 & ALL,
    "__funnelshift_rc(x, y, z)": lambda x, y, z: (y << 32 | x) >> min(z, 32) & ALL,
    "__umulhi(x, y)": lambda x, y, z: x * y >> 32,
    "(unsigned)__mulhi(x, y)": lambda x, y, z: signed(x) * signed(y) >> 32 & ALL,
    "__umul64hi(q, q)": lambda x, y, z: (y << 32 | x) ** 2 >> 64,
    "__mul64hi(q, q)": lambda x, y, z: signed(y << 32 | x, 64) ** 2 >> 64,
    "__dp4a(x, y, z)": lambda x, y, z: dot(x, y, z, is_signed=False) & ALL,
    "(unsigned)__dp4a((int)x, (int)y, (int)z)": lambda x, y, z: dot(x, y, z, is_signed=True) & ALL,
    "min(x, y)": lambda x, y, z: min(x, y),
    "(unsigned)max((int)x, (int)y)": lambda x, y, z: max(signed(x), signed(y)) & ALL,
    "min(x, 1000)": lambda x, y, z: min(x, 1000),
}


def integer_source() -> str:
    body = "unsigned long long i = threadIdx.x, q = (unsigned long long)b[i] << 32 | a[i];\n"
    body += "unsigned x = a[i], y = b[i], z = c[i];\n"
    body += "\n".join(f"out[{k} * 64 + i] = {text};" for k, text in enumerate(INTEGERS))
    parameters = "const unsigned* a, const unsigned* b, const unsigned* c, unsigned long long* out"
    return kernel("integers", parameters, body)


def test_integers(device: Device) -> None:
    integers = device.load(all_kernels()).get_function("integers")
    given = RNG.integers(0, 1 << 32, (3, 64), np.uint32)
    edges = (0, 1, 0x80000000, ALL)
    given[:, :64] = np.where(np.arange(64) < 40, given, 0)
    given[:, 40:] = np.array(list(itertools.product(edges, edges, (0, 31))))[:24].T
    given[2, ::5] = RNG.integers(0, 40, given[2, ::5].size)
    out = device.empty((len(INTEGERS), 64), np.uint64)
    integers((1,), (64,), (*map(device.array, given), out))
    for row, (text, expected) in zip(device.to_host(out), INTEGERS.items(), strict=True):
        assert row.tolist() == [expected(*map(int, xyz)) for xyz in given.T], text


FLOATS = """
    float f = 1.000244140625f;  // 1 + 2^-12
    out[0] = __fmaf_rn(f, f, -1.00048828125f);  // exactly 2^-24
    out[1] = f * f - 1.00048828125f;  // rounded in between
    out[2] = __fadd_rn(__fmul_rn(f, f), -1.00048828125f);
    out[3] = fmaf(f, f, -1.00048828125f);
    out[4] = __fdiv_rn(1.0f, 3.0f);
    out[5] = __fsqrt_rn(2.0f);
    out[6] = __fmul_rn(__uint_as_float(0x00800000), 0.5f);  // subnormal
    out[7] = __frcp_rn(3.0f);
    out[8] = __double2float_rn(__dadd_rn(1.0, 0x1p-53));
    out[9] = __fsub_rn(0.1f, 0.2f);
    out[10] = __fmul_rn(0.0f, __uint_as_float(0xff800000));
    out[11] = fminf(__uint_as_float(0x7fc00001), 3.0f);
    out[12] = max(2.5f, 1.0f);
    out[13] = __uint2float_rn(0xffffff7f);
    out[14] = __ull2float_rn(0xffffff8000000001ull);
    out[15] = rintf(2.5f);
"""
ONE, THIRD = np.float32(1), np.float32(1) / np.float32(3)


def test_floats(device: Device) -> None:
    out = device.empty(16, np.float32)
    device.load(all_kernels()).get_function("floats")((1,), (1,), (out,))
    found = device.to_host(out)
    assert found.tolist()[:10] == [
        *(2.0**-24, 0.0, 0.0, 2.0**-24),
        *(float(THIRD), float(np.sqrt(np.float32(2))), 2.0**-127, float(THIRD)),
        *(1.0, float(np.float32(0.1) - np.float32(0.2))),
    ]
    assert found.view(np.uint32)[10] == 0x7FFFFFFF
    assert found.tolist()[11:] == [3.0, 2.5, 4294967040.0, 2.0**64, 2.0]


VALUES = [
    *(0.0, 0.5, 1.5, -0.5, -1.5, 1e20, -1e20, np.inf, -np.inf, np.nan),
    *(2147483520.0, 2.0**31, -(2.0**31), 4294967040.0, 2.0**32, 9223371487098961920.0),
]
ROUNDINGS = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}
INTEGER_TYPES: dict[str, np.dtype[np.integer[Any]]] = {
    name: np.dtype(code)
    for name, code in (("int", "i4"), ("uint", "u4"), ("ll", "i8"), ("ull", "u8"))
}
CONVERSIONS = list(itertools.product(("float", "double"), INTEGER_TYPES, ROUNDINGS))


def converted(value: float, source: str, target: str, rounding: str) -> int:
    """Return the integer, as its bits."""
    info = np.iinfo(INTEGER_TYPES[target])
    if np.isnan(value):
        return 1 << (info.bits - 1) if "double" in source or info.bits == 64 else 0
    if np.isinf(value):
        return int(info.max if value > 0 else info.min) & (1 << info.bits) - 1
    whole = int(ROUNDINGS[rounding](value))
    return min(max(whole, int(info.min)), int(info.max)) & (1 << info.bits) - 1


def conversion_source() -> str:
    lines = []
    for i, (given, target, rounding) in enumerate(CONVERSIONS):
        wide = "unsigned" if "int" in target else "unsigned long long"
        function = f"__{given}2{target}_{rounding}"
        lines.append(f"out[{i} * {len(VALUES)} + i] = ({wide}){function}(({given})in[i]);")
    return kernel(
        "convert",
        "const double* in, unsigned long long* out",
        "int i = threadIdx.x;\n" + "\n".join(lines),
    )


def test_conversions_to_integers(device: Device) -> None:
    out = device.empty((len(CONVERSIONS), len(VALUES)), np.uint64)
    convert = device.load(all_kernels()).get_function("convert")
    convert((1,), (len(VALUES),), (device.array(np.array(VALUES)), out))
    for row, names in zip(device.to_host(out), CONVERSIONS, strict=True):
        assert row.tolist() == [converted(value, *names) for value in VALUES], names


# Atomic functions: on a counter that starts at 100, by every thread of 64 with i.
ATOMICS = {
    "atomicAdd(at, i)": 100 + 2016,
    "atomicSub(at, i)": (100 - 2016) & ALL,
    "atomicMin(at, i + 7)": 7,
    "atomicMax(at, 3 * i)": 189,
    "atomicAnd(at, ~(1u << i % 32))": 0,
    "atomicOr(at, 1u << i % 16)": 0xFFFF,
    "atomicXor(at, 1u << i % 32)": 100,
    "atomicInc(at, 120u)": 100 + 64 - 121,
    "atomicDec(at, 50u)": (50 - 63) % 51,
    "atomicExch(at, 9u)": 9,
    "atomicCAS(at, 100u, 5u)": 5,
    "atomicMin((int*)at, (int)i - 7)": -7 & ALL,
}


def atomic_source() -> str:
    body = "unsigned i = threadIdx.x;\n" + "\n".join(
        f"{{ unsigned* at = out + {k}; {text}; }}" for k, text in enumerate(ATOMICS)
    )
    return kernel("atomics", "unsigned* out", body)


def test_atomics(device: Device) -> None:
    out = device.array(np.full(len(ATOMICS), 100, np.uint32))
    device.load(all_kernels()).get_function("atomics")((1,), (64,), (out,))
    assert device.to_host(out).tolist() == list(ATOMICS.values())


WIDE_ATOMICS = kernel(
    "wide",
    "float* f, double* d, unsigned long long* q",
    """int i = threadIdx.x;
    atomicAdd(f, 0.5f); atomicAdd(d, 0.25); atomicAdd(q, 1ull << 40); atomicMax(q + 1, 1ull << i);
    atomicExch(f + 1, 2.0f);
    unsigned long long old = q[2], seen;
    do { seen = old; old = atomicCAS(q + 2, seen, seen + 3); } while (old != seen);""",
)


def test_wide_atomics(device: Device) -> None:
    single, double = device.array(np.zeros(2, np.float32)), device.array(np.zeros(1))
    words = device.array(np.zeros(3, np.uint64))
    device.load(all_kernels(), seed=5).get_function("wide")((1,), (64,), (single, double, words))
    assert device.to_host(single).tolist() == [32.0, 2.0]
    assert device.to_host(double).tolist() == [16.0]
    assert device.to_host(words).tolist() == [64 << 40, 1 << 63, 192]


VECTORS = kernel(
    "vectors",
    "unsigned* out",
    """
    ((uint4*)out)[0] = make_uint4(sizeof(uint2), sizeof(uint3), sizeof(uint4), sizeof(float4));
    ((uint4*)out)[1] = make_uint4(alignof(uint2), alignof(uint3), alignof(uint4), alignof(float2));
    ((uint4*)out)[2] = make_uint4(alignof(uchar4), alignof(ushort2), alignof(short4),
                                  alignof(double2));
    ((ushort4*)out)[6] = make_ushort4(1, 2, 3, 4);
    ((uchar2*)out)[28] = make_uchar2(5, 6);
    float2 pair = make_float2(1.5f, -2.0f);
    ((float*)out)[15] = pair.x + pair.y;""",
)


def test_vectors(device: Device) -> None:
    out = device.array(np.zeros(16, np.uint32))
    device.load(all_kernels()).get_function("vectors")((1,), (1,), (out,))
    words = device.to_host(out)
    assert words[:12].tolist() == [8, 12, 16, 16, 8, 4, 16, 8, 4, 4, 8, 16]
    raw = words.view(np.uint8)
    assert raw[48:56].view(np.uint16).tolist() == [1, 2, 3, 4]
    assert raw[56:58].tolist() == [5, 6]
    assert words[15:].view(np.float32).tolist() == [-0.5]


@cache
def all_kernels() -> str:
    """Return the kernels of all tests: one compilation takes little longer than that of one."""
    return "".join(
        (
            collective_source(),
            SHUFFLES,
            VOTES,
            PARTIAL,
            integer_source(),
            kernel("floats", "float* out", FLOATS),
            conversion_source(),
            atomic_source(),
            WIDE_ATOMICS,
            VECTORS,
        )
    )
