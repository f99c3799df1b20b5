/* Counts that models are made from. */
#include <string.h>

#include "unweight.h"

/* Four sets of counters, one after the other: neighbouring weights often fall into the same bin, and a
 * counter that was just stored cannot be loaded again at once. */
enum { UW_SETS = 4, UW_MAX_BINS = 1 << 14, UW_SAMPLED_BLOCKS = 4 };

#define UW_COUNT(TYPE)                                                                           \
    static void count_##TYPE(const TYPE *words, uint64_t count, uint32_t shift, uint32_t mask,   \
                             uint32_t *sets)                                                     \
    {                                                                                            \
        uint32_t *second = sets + mask + 1, *third = second + mask + 1, *fourth = third + mask + 1; \
        uint64_t i = 0;                                                                          \
        for (; i + UW_SETS <= count; i += UW_SETS) {                                             \
            sets[(uint32_t)(words[i] >> shift) & mask]++;                                        \
            second[(uint32_t)(words[i + 1] >> shift) & mask]++;                                  \
            third[(uint32_t)(words[i + 2] >> shift) & mask]++;                                   \
            fourth[(uint32_t)(words[i + 3] >> shift) & mask]++;                                  \
        }                                                                                        \
        for (; i < count; i++)                                                                   \
            sets[(uint32_t)(words[i] >> shift) & mask]++;                                        \
    }

UW_COUNT(uint8_t)
UW_COUNT(uint16_t)
UW_COUNT(uint32_t)
UW_COUNT(uint64_t)

/* Adds to bins[k] how many words have k in the `bits` bits above bit `shift` (bits <= 14). With
 * `block` only one in UW_SAMPLED_BLOCKS blocks of so many words is counted, the first included.
 * Returns -1 for what cannot be counted. `scratch` holds UW_SETS * UW_MAX_BINS counters. */
UW_EXPORT int uw_histogram(const uint8_t *words, uint64_t count, uint32_t word_bytes, uint32_t shift,
                           uint32_t bits, uint64_t block, uint32_t *scratch, uint32_t *bins)
{
    const uint32_t mask = (1u << bits) - 1;
    const uint64_t size = block ? block : count, step = block ? UW_SAMPLED_BLOCKS * block : count;
    if (1u << bits > UW_MAX_BINS)
        return -1;
    memset(scratch, 0, UW_SETS * ((size_t)4 << bits));
    for (uint64_t at = 0; at < count; at += step) {
        const uint64_t part = count - at < size ? count - at : size;
        const uint8_t *from = words + at * word_bytes;
        switch (word_bytes) {
        case 1: count_uint8_t(from, part, shift, mask, scratch); break;
        case 2: count_uint16_t((const uint16_t *)from, part, shift, mask, scratch); break;
        case 4: count_uint32_t((const uint32_t *)from, part, shift, mask, scratch); break;
        case 8: count_uint64_t((const uint64_t *)from, part, shift, mask, scratch); break;
        default: return -1;
        }
    }
    for (uint32_t set = 0; set < UW_SETS; set++)
        for (uint32_t bin = 0; bin <= mask; bin++)
            bins[bin] += scratch[((size_t)set << bits) + bin];
    return 0;
}
