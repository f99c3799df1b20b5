// Device functions on integers and floating-point numbers, with the results that a GPU gives.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

// ---- Loads and stores that hint at caching

template <class T>
inline T __ldg(const T* address) { return *address; }
template <class T>
inline T __ldcg(const T* address) { return *address; }
template <class T>
inline T __ldcs(const T* address) { return *address; }
template <class T>
inline void __stcg(T* address, std::type_identity_t<T> value) { *address = value; }
template <class T>
inline void __stcs(T* address, std::type_identity_t<T> value) { *address = value; }

// ---- Bits of integers

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned long long __brevll(unsigned long long x) {
    unsigned long long reversed = 0;
    for (int i = 0; i < 64; i++) reversed |= (x >> i & 1) << (63 - i);
    return reversed;
}
inline unsigned __brev(unsigned x) { return unsigned(__brevll(x) >> 32); }

// Selects bytes of y:x; bit 3 of a selector takes the sign of the byte instead.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selectors) {
    const std::uint64_t bytes = std::uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned selector = selectors >> (4 * i);
        unsigned byte = bytes >> (8 * (selector & 7)) & 255;
        if (selector & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((std::uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((std::uint64_t(high) << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned(std::uint64_t(x) * y >> 32); }
inline int __mulhi(int x, int y) { return int(std::int64_t(x) * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline long long __mul64hi(long long x, long long y) {
    return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}

// The sum of the products of four bytes, and of a third operand.
inline unsigned __dp4a(unsigned x, unsigned y, unsigned sum) {
    for (int i = 0; i < 32; i += 8) sum += (x >> i & 255) * (y >> i & 255);
    return sum;
}
inline int __dp4a(int x, int y, int sum) {
    unsigned total = unsigned(sum);
    for (int i = 0; i < 32; i += 8)
        total += unsigned(static_cast<signed char>(x >> i) * static_cast<signed char>(y >> i));
    return int(total);
}

// Operands of different types meet in their common one, as for the operators.
template <class T, class U>
inline std::common_type_t<T, U> min(T x, U y) {
    using Common = std::common_type_t<T, U>;
    if constexpr (std::is_floating_point_v<Common>)
        return std::fmin(Common(x), Common(y));
    else
        return Common(x) < Common(y) ? Common(x) : Common(y);
}
template <class T, class U>
inline std::common_type_t<T, U> max(T x, U y) {
    using Common = std::common_type_t<T, U>;
    if constexpr (std::is_floating_point_v<Common>)
        return std::fmax(Common(x), Common(y));
    else
        return Common(x) > Common(y) ? Common(x) : Common(y);
}

// ---- Numbers as bits

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
    return std::bit_cast<double>(std::uint64_t(unsigned(high)) << 32 | unsigned(low));
}

// ---- Operations that are rounded once, to nearest, and never fused with others

namespace cuda_on_cpu {
// A GPU has one NaN for results in binary32, x86 passes on that of an operand.
inline float canonical(float x) { return std::isnan(x) ? __uint_as_float(0x7fffffff) : x; }
}  // namespace cuda_on_cpu

inline float __fadd_rn(float x, float y) { return cuda_on_cpu::canonical(x + y); }
inline float __fsub_rn(float x, float y) { return cuda_on_cpu::canonical(x - y); }
inline float __fmul_rn(float x, float y) { return cuda_on_cpu::canonical(x * y); }
inline float __fdiv_rn(float x, float y) { return cuda_on_cpu::canonical(x / y); }
inline float __frcp_rn(float x) { return cuda_on_cpu::canonical(1.0f / x); }
inline float __fsqrt_rn(float x) { return cuda_on_cpu::canonical(std::sqrt(x)); }
inline float __fmaf_rn(float x, float y, float z) {
    return cuda_on_cpu::canonical(std::fma(x, y, z));
}
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }

// ---- Conversions

namespace cuda_on_cpu {

// The nearest value that the integer type has. NaN becomes 0, or the highest bit alone where a type
// of 64 bits is involved (PTX ISA, `cvt`).
template <class Integer, class Float>
inline Integer saturate(Float x) {
    using Limits = std::numeric_limits<Integer>;
    constexpr bool is_wide = sizeof(Integer) == 8 || sizeof(Float) == 8;
    if (std::isnan(x)) return is_wide ? Integer(std::uint64_t(1) << (8 * sizeof(Integer) - 1)) : 0;
    if (x < Float(Limits::min())) return Limits::min();
    // The largest value itself may round up to a power of two, which is beyond.
    if (x >= std::ldexp(Float(1), Limits::digits)) return Limits::max();
    return Integer(x);
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_TO_INTEGER(name, from, to)                                                     \
    inline to name##_rn(from x) { return cuda_on_cpu::saturate<to>(std::nearbyint(x)); }           \
    inline to name##_rz(from x) { return cuda_on_cpu::saturate<to>(std::trunc(x)); }               \
    inline to name##_ru(from x) { return cuda_on_cpu::saturate<to>(std::ceil(x)); }                \
    inline to name##_rd(from x) { return cuda_on_cpu::saturate<to>(std::floor(x)); }

CUDA_ON_CPU_TO_INTEGER(__float2int, float, int)
CUDA_ON_CPU_TO_INTEGER(__float2uint, float, unsigned)
CUDA_ON_CPU_TO_INTEGER(__float2ll, float, long long)
CUDA_ON_CPU_TO_INTEGER(__float2ull, float, unsigned long long)
CUDA_ON_CPU_TO_INTEGER(__double2int, double, int)
CUDA_ON_CPU_TO_INTEGER(__double2uint, double, unsigned)
CUDA_ON_CPU_TO_INTEGER(__double2ll, double, long long)
CUDA_ON_CPU_TO_INTEGER(__double2ull, double, unsigned long long)
#undef CUDA_ON_CPU_TO_INTEGER

inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return double(x); }
inline double __ull2double_rn(unsigned long long x) { return double(x); }
inline float __double2float_rn(double x) { return cuda_on_cpu::canonical(float(x)); }
