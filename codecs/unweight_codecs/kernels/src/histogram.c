/* Counts that models are made from. */
#include <string.h>

#include "exports.h"

/* Counts into UW_HISTOGRAM_SETS sets of counters, one after the other: neighbouring weights often fall into the same
 * bin, and a counter that was just stored cannot be loaded again at once. */
#define UW_COUNT(TYPE)                                                                                           \
    typedef TYPE unaligned_##TYPE __attribute__((aligned(1), may_alias));                                        \
    static void count_##TYPE(const uint8_t *from, uint64_t count, uint32_t shift, uint32_t mask, uint32_t *sets) \
    {                                                                                                            \
        const unaligned_##TYPE *words = (const unaligned_##TYPE *)from;                                          \
        uint32_t *second = sets + mask + 1, *third = second + mask + 1, *fourth = third + mask + 1;              \
        uint64_t i = 0;                                                                                          \
        for (; i + UW_HISTOGRAM_SETS <= count; i += UW_HISTOGRAM_SETS) {                                         \
            sets[(uint32_t)(words[i] >> shift) & mask]++;                                                        \
            second[(uint32_t)(words[i + 1] >> shift) & mask]++;                                                  \
            third[(uint32_t)(words[i + 2] >> shift) & mask]++;                                                   \
            fourth[(uint32_t)(words[i + 3] >> shift) & mask]++;                                                  \
        }                                                                                                        \
        for (; i < count; i++)                                                                                   \
            sets[(uint32_t)(words[i] >> shift) & mask]++;                                                        \
    }

UW_COUNT(uint8_t)
UW_COUNT(uint16_t)
UW_COUNT(uint32_t)
UW_COUNT(uint64_t)

/* Adds to bins[k] how many words have k in the `bits` bits above bit `shift` (bits <= 14). With
 * `stretch` only one in UW_SAMPLING_STRIDE stretches of so many words is counted, the first included.
 * Returns UW_UNSUPPORTED for what cannot be counted. `scratch` holds UW_HISTOGRAM_SETS * UW_HISTOGRAM_BINS counters. */
int32_t uw_histogram(const uint8_t *words, uint64_t count, uint32_t word_bytes, uint32_t shift, uint32_t bits,
                     uint64_t stretch, uint32_t *scratch, uint32_t *bins)
{
    const uint32_t mask = (1u << bits) - 1;
    const uint64_t size = stretch ? stretch : count, stride = stretch ? UW_SAMPLING_STRIDE * stretch : count;
    if (1u << bits > UW_HISTOGRAM_BINS)
        return UW_UNSUPPORTED;
    memset(scratch, 0, UW_HISTOGRAM_SETS * ((size_t)4 << bits));
    for (uint64_t at = 0; at < count; at += stride) {
        const uint64_t part = count - at < size ? count - at : size;
        const uint8_t *from = words + at * word_bytes;
        switch (word_bytes) {
        case 1: count_uint8_t(from, part, shift, mask, scratch); break;
        case 2: count_uint16_t(from, part, shift, mask, scratch); break;
        case 4: count_uint32_t(from, part, shift, mask, scratch); break;
        case 8: count_uint64_t(from, part, shift, mask, scratch); break;
        default: return UW_UNSUPPORTED;
        }
    }
    for (uint32_t set = 0; set < UW_HISTOGRAM_SETS; set++)
        for (uint32_t bin = 0; bin <= mask; bin++)
            bins[bin] += scratch[((size_t)set << bits) + bin];
    return UW_OK;
}
