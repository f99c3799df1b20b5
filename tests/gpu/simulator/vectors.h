// Vector types with the alignment that CUDA gives them, so that misaligned access can be noticed.
#pragma once

#define CUDA_ON_CPU_VECTOR(type, name)                                                          \
    struct name##1 { type x; };                                                                 \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                    \
    struct name##3 { type x, y, z; };                                                           \
    struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; };      \
    inline name##1 make_##name##1(type x) { return {x}; }                                       \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                            \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                 \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

CUDA_ON_CPU_VECTOR(signed char, char)
CUDA_ON_CPU_VECTOR(unsigned char, uchar)
CUDA_ON_CPU_VECTOR(short, short)
CUDA_ON_CPU_VECTOR(unsigned short, ushort)
CUDA_ON_CPU_VECTOR(int, int)
CUDA_ON_CPU_VECTOR(unsigned, uint)
CUDA_ON_CPU_VECTOR(long long, longlong)
CUDA_ON_CPU_VECTOR(unsigned long long, ulonglong)
CUDA_ON_CPU_VECTOR(float, float)
CUDA_ON_CPU_VECTOR(double, double)
#undef CUDA_ON_CPU_VECTOR

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
