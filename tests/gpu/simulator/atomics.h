// Atomic functions. A fiber is never interrupted, so plain code is atomic; but other threads may come
// first, so the order in which threads get here is up to the generator.
#pragma once

#include "machine.h"

#include <type_traits>

namespace cuda_on_cpu {

template <class T, class Change>
inline T exchange(T* address, Change change) {
    static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
    if (random_bits() & 1) run_another();
    const T old = *address;
    *address = change(old);
    return old;
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_ATOMIC(name, expression)                                                     \
    template <class T>                                                                           \
    inline T name(T* address, std::type_identity_t<T> value) {                                   \
        return cuda_on_cpu::exchange(address, [=](T old) { return T(expression); });             \
    }

CUDA_ON_CPU_ATOMIC(atomicAdd, old + value)
CUDA_ON_CPU_ATOMIC(atomicSub, old - value)
CUDA_ON_CPU_ATOMIC(atomicMin, value < old ? value : old)
CUDA_ON_CPU_ATOMIC(atomicMax, value > old ? value : old)
CUDA_ON_CPU_ATOMIC(atomicExch, (static_cast<void>(old), value))
CUDA_ON_CPU_ATOMIC(atomicAnd, old & value)
CUDA_ON_CPU_ATOMIC(atomicOr, old | value)
CUDA_ON_CPU_ATOMIC(atomicXor, old ^ value)
CUDA_ON_CPU_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUDA_ON_CPU_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef CUDA_ON_CPU_ATOMIC

template <class T>
inline T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    return cuda_on_cpu::exchange(address, [=](T old) { return old == expected ? value : old; });
}

inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
