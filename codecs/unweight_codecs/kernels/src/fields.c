/* Fields of quantised blocks: bytes at the same place of every block, densely packed values. */
#include <string.h>

#include "exports.h"

enum { UW_DENSE_BYTES = 4096 }; /* of a run of blocks: what stays in the first-level cache */

/* Copies `size` bytes `count` times, from and to places that lie the given strides apart. A size known
 * to the compiler makes each copy a load and a store instead of a call. */
UW_INLINE void copy_strided_of(uint8_t *to, size_t to_stride, const uint8_t *from, size_t from_stride,
                               uint64_t count, const size_t size)
{
    for (uint64_t i = 0; i < count; i++)
        memcpy(to + i * to_stride, from + i * from_stride, size);
}

static void copy_strided(uint8_t *to, size_t to_stride, const uint8_t *from, size_t from_stride,
                         uint64_t count, size_t size)
{
    switch (size) {
    case 1: copy_strided_of(to, to_stride, from, from_stride, count, 1); break;
    case 4: copy_strided_of(to, to_stride, from, from_stride, count, 4); break;
    case 16: copy_strided_of(to, to_stride, from, from_stride, count, 16); break;
    case 32: copy_strided_of(to, to_stride, from, from_stride, count, 32); break;
    case 64: copy_strided_of(to, to_stride, from, from_stride, count, 64); break;
    case 128: copy_strided_of(to, to_stride, from, from_stride, count, 128); break;
    default: copy_strided_of(to, to_stride, from, from_stride, count, size);
    }
}

/* Unpacks the `size` bytes at `first` of each of `count` blocks, `stride` bytes apart, to values of
 * `width` bits (1 to 8; size * 8 is a multiple of it). */
void uw_take_field(const uw_kernel *kernel, const uint8_t *blocks, uint64_t count, uint64_t stride, uint32_t first,
                   uint32_t size, uint32_t width, uint8_t *out)
{
    uint8_t dense[UW_DENSE_BYTES];
    const uint64_t run = UW_DENSE_BYTES / size, values = (uint64_t)size * 8 / width;
    for (uint64_t at = 0; at < count; at += run) {
        const uint64_t part = count - at < run ? count - at : run;
        uint8_t *into = width == 8 ? out + at * size : dense;
        copy_strided(into, size, blocks + at * stride + first, stride, part, size);
        if (width < 8)
            kernel->unpack_bits(dense, part * size, part * values, width, out + at * values);
    }
}

/* The inverse of uw_take_field, for blocks of `stride` bytes. */
void uw_put_field(const uw_kernel *kernel, const uint8_t *values, uint64_t count, uint64_t stride, uint32_t first,
                  uint32_t size, uint32_t width, uint8_t *blocks)
{
    uint8_t dense[UW_DENSE_BYTES + 64];
    const uint64_t run = UW_DENSE_BYTES / size, per_block = (uint64_t)size * 8 / width;
    for (uint64_t at = 0; at < count; at += run) {
        const uint64_t part = count - at < run ? count - at : run;
        const uint8_t *from = width == 8 ? values + at * size : dense;
        if (width < 8)
            kernel->pack_bits(values + at * per_block, part * per_block, width, dense);
        copy_strided(blocks + at * stride + first, stride, from, size, part, size);
    }
}

/* The value of an F16 whose exponent is not all ones: its mantissa times a signed power of two, neither of
 * them subnormal, as a process may have told the processor to flush those. */
UW_INLINE double half_value(uint32_t half)
{
    const uint32_t exponent = half >> 10 & 31, subnormal = exponent == 0;
    const int32_t mantissa = (int32_t)((half & 0x3ff) | (1 - subnormal) << 10);
    const uint64_t bits = (uint64_t)(exponent + subnormal + 1023 - 25) << 52 | (uint64_t)(half >> 15) << 63;
    double power;
    memcpy(&power, &bits, sizeof power);
    return mantissa * power;
}

/* Contexts of `count` blocks from the bytes of the scale d and the minimum m: see specs/blocks.md.
 * -m / d * factor is rounded to the nearest integer, ties to even, less `below`, limited to what
 * `contexts` allow; 0 where d or m is not finite or d is zero. */
void uw_zero_points(const uint8_t *const halves[4], uint64_t count, double factor, double below, uint32_t contexts,
                    uint8_t *out)
{
    enum { BLOCKS_AT_ONCE = 256 };
    const double nearest = 0x1.8p52; /* adding it leaves no room for a fraction */
    const double last = (double)contexts - 1;
    for (uint64_t at = 0; at < count; at += BLOCKS_AT_ONCE) {
        const uint64_t part = count - at < BLOCKS_AT_ONCE ? count - at : BLOCKS_AT_ONCE;
        const uint8_t *const d_low = halves[0] + at, *const d_high = halves[1] + at;
        const uint8_t *const m_low = halves[2] + at, *const m_high = halves[3] + at;
        double quotient[BLOCKS_AT_ONCE];
        uint32_t usable[BLOCKS_AT_ONCE];
        for (uint64_t i = 0; i < part; i++) {
            const uint32_t d = d_low[i] | (uint32_t)d_high[i] << 8, m = m_low[i] | (uint32_t)m_high[i] << 8;
            usable[i] = ((d & 0x7c00) != 0x7c00) & ((m & 0x7c00) != 0x7c00) & ((d & 0x7fff) != 0);
            /* A zero d is made one that divides; what comes of it is not used. */
            quotient[i] = -half_value(m) / half_value(d | (1 - usable[i]));
        }
        for (uint64_t i = 0; i < part; i++) {
            const double zero = quotient[i] * factor + nearest - nearest - below;
            const double positive = zero > 0 ? zero : 0, limited = positive < last ? positive : last;
            out[at + i] = (uint8_t)((uint32_t)(int32_t)limited & (0u - usable[i]));
        }
    }
}
