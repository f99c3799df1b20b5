/* Fields of quantised blocks: bytes at the same place of every block, densely packed values. */
#include <string.h>

#include "unweight.h"

enum { UW_BATCH_BYTES = 4096 };

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
    case 2: copy_strided_of(to, to_stride, from, from_stride, count, 2); break;
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
UW_EXPORT void uw_take_field(const uint8_t *blocks, uint64_t count, uint64_t stride, uint32_t first,
                             uint32_t size, uint32_t width, uint8_t *out)
{
    uint8_t dense[UW_BATCH_BYTES];
    const uint64_t batch = UW_BATCH_BYTES / size, values = (uint64_t)size * 8 / width;
    for (uint64_t at = 0; at < count; at += batch) {
        const uint64_t part = count - at < batch ? count - at : batch;
        uint8_t *into = width == 8 ? out + at * size : dense;
        copy_strided(into, size, blocks + at * stride + first, stride, part, size);
        if (width < 8)
            uw_unpack_bits(dense, part * size, part * values, width, out + at * values);
    }
}

/* The inverse of uw_take_field, for blocks of `stride` bytes. */
UW_EXPORT void uw_put_field(const uint8_t *values, uint64_t count, uint64_t stride, uint32_t first,
                            uint32_t size, uint32_t width, uint8_t *blocks)
{
    uint8_t dense[UW_BATCH_BYTES + 64];
    const uint64_t batch = UW_BATCH_BYTES / size, per_block = (uint64_t)size * 8 / width;
    for (uint64_t at = 0; at < count; at += batch) {
        const uint64_t part = count - at < batch ? count - at : batch;
        const uint8_t *from = width == 8 ? values + at * size : dense;
        if (width < 8)
            uw_pack_bits(values + at * per_block, part * per_block, width, dense);
        copy_strided(blocks + at * stride + first, stride, from, size, part, size);
    }
}
