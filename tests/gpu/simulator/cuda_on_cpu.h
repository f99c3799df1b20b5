// Compiles a .cu file of plain CUDA C with a C++20 compiler and runs its kernels on the CPU.
//
// A kernel gets what the language gives it without any include: qualifiers, built-in variables,
// vector types and device functions. One block runs at a time; each of its threads is a fiber that
// gives up the processor only where CUDA threads meet (barriers, warp collectives, atomics), to a
// ready thread that a seeded generator picks. What CUDA leaves undefined is a fault with a place
// and a reason wherever it can be noticed.
//
// Not simulated: memory ordering (fences do nothing), several blocks at once, timing, inline PTX,
// tensor cores, asynchronous copies, printf, and `__device__` variables that outlive a launch.
#pragma once

#include "arithmetic.h"
#include "atomics.h"
#include "barrier.h"
#include "export.h"
#include "undefined.h"
#include "vectors.h"
#include "warp.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __align__(n) alignas(n)
// Thread-local variables of the library lie together, those of templates too, which a section of
// their own cannot achieve: so the shared memory of a module can be poisoned as one range.
#define __shared__ thread_local

#define warpSize 32
inline const uint3& threadIdx = cuda_on_cpu::machine.thread_index;
inline const uint3& blockIdx = cuda_on_cpu::machine.block_index;
inline const dim3& blockDim = cuda_on_cpu::machine.block;
inline const dim3& gridDim = cuda_on_cpu::machine.grid;
