/* Fields of quantised blocks: bytes at the same place of every block, densely packed values. */
#include <string.h>

#include "unweight.h"

enum { UW_BATCH_BYTES = 4096 };

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
        for (uint64_t i = 0; i < part; i++)
            memcpy(into + i * size, blocks + (at + i) * stride + first, size);
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
        for (uint64_t i = 0; i < part; i++)
            memcpy(blocks + (at + i) * stride + first, from + i * size, size);
    }
}
