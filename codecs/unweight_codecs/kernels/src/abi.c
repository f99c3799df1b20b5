/* What the binding has to know about this library before it calls it: see ../native/library.py. */
#include <string.h>

#include "exports.h"

/* The order is that of `FACTS` in the binding. The first number tells libraries apart, the others are what the binding
 * repeats by hand: sizes of structures, and constants that both sides compute with. */
uint32_t uw_abi(uint32_t *facts, uint32_t room)
{
    static const uint32_t all[] = {
        UW_ABI,
        sizeof(uw_segment),
        sizeof(uw_chunk16),
        sizeof(uw_level_chunk),
        sizeof(uw_split_spec),
        sizeof(uw_levels),
        sizeof(uw_factors),
        UW_LANES,
        UW_GROUP,
        1u << UW_CONTEXT_RUN_BITS,
        UW_SLOTS,
        UW_STATE_LOW,
        UW_ALPHABET,
        UW_MAX_RANK,
        UW_SPARE,
        UW_DECODER_ROOM,
        UW_ENCODER_ROOM,
        UW_TABLE_BYTES,
        UW_COST_BITS,
        UW_LLOYD_ITERATIONS,
        UW_SAMPLING_STRIDE,
        UW_HISTOGRAM_SETS * UW_HISTOGRAM_BINS,
    };
    const uint32_t count = sizeof all / sizeof *all;
    memcpy(facts, all, (room < count ? room : count) * sizeof *all);
    return count;
}

const uw_kernel *uw_find_kernel(const char *name)
{
    if (strcmp(name, "portable") == 0)
        return &uw_portable;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return &uw_avx2;
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
        __builtin_cpu_supports("bmi2"))
        return &uw_avx512;
#endif
    return NULL;
}
