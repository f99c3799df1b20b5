/* AVX2 kernels: gathers for decoding, PEXT and PDEP for bit packing. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "unweight.h"

#define UW_TARGET __attribute__((target("avx2,bmi,bmi2,popcnt")))
#include "planes.inc.h"
#include "levels.inc.h"

/* One row per refill mask of eight lanes: which of the next words each lane takes. */
#define UW_WORD_OF(MASK, LANE) \
    ((MASK) >> (LANE) & 1u ? (uint32_t)__builtin_popcount((MASK) & ((1u << (LANE)) - 1u)) : 0u)
#define UW_ROW(MASK)                                                                            \
    {                                                                                           \
        UW_WORD_OF(MASK, 0), UW_WORD_OF(MASK, 1), UW_WORD_OF(MASK, 2), UW_WORD_OF(MASK, 3),     \
            UW_WORD_OF(MASK, 4), UW_WORD_OF(MASK, 5), UW_WORD_OF(MASK, 6), UW_WORD_OF(MASK, 7), \
    }
#define UW_4_ROWS(MASK) UW_ROW(MASK), UW_ROW((MASK) + 1u), UW_ROW((MASK) + 2u), UW_ROW((MASK) + 3u)
#define UW_16_ROWS(MASK) \
    UW_4_ROWS(MASK), UW_4_ROWS((MASK) + 4u), UW_4_ROWS((MASK) + 8u), UW_4_ROWS((MASK) + 12u)
#define UW_64_ROWS(MASK) \
    UW_16_ROWS(MASK), UW_16_ROWS((MASK) + 16u), UW_16_ROWS((MASK) + 32u), UW_16_ROWS((MASK) + 48u)
static const uint32_t refill_order[256][8] = {UW_64_ROWS(0u), UW_64_ROWS(64u), UW_64_ROWS(128u), UW_64_ROWS(192u)};

UW_TARGET UW_INLINE __m256i decode_round(const uw_decoder_entry *table, __m256i context_offset, __m256i *state,
                                        const uint8_t **words)
{
    const __m256i slot_mask = _mm256_set1_epi32(UW_SLOTS - 1), zero = _mm256_setzero_si256();
    __m256i index = _mm256_add_epi32(_mm256_and_si256(*state, slot_mask), context_offset);
    __m256i entry = _mm256_i32gather_epi32((const int *)table, index, 4);
    __m256i frequency = _mm256_add_epi32(_mm256_and_si256(_mm256_srli_epi32(entry, 8), slot_mask),
                                         _mm256_set1_epi32(1));
    __m256i next = _mm256_add_epi32(
        _mm256_mullo_epi32(frequency, _mm256_srli_epi32(*state, UW_PROB_BITS)),
        _mm256_srli_epi32(entry, 20));
    __m256i low = _mm256_cmpeq_epi32(_mm256_srli_epi32(next, 16), zero);
    uint32_t mask = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(low));
    __m256i fresh = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)*words));
    fresh = _mm256_permutevar8x32_epi32(fresh, _mm256_loadu_si256((const __m256i *)refill_order[mask]));
    *state = _mm256_blendv_epi8(next, _mm256_or_si256(_mm256_slli_epi32(next, 16), fresh), low);
    *words += 2 * (uint32_t)_mm_popcnt_u32(mask);
    return entry;
}

/* The contexts of 32 symbols, a byte each: quarter 0 to 3 of a group. */
UW_TARGET UW_INLINE __m256i context_bytes_of(uw_contexts contexts, int quarter)
{
    if (!contexts.of)
        return _mm256_setzero_si256();
    if (contexts.shift == UW_CONTEXT_RUN_BITS)
        return _mm256_set1_epi8((char)contexts.of[quarter]);
    return _mm256_loadu_si256((const __m256i *)contexts.of + quarter);
}

UW_TARGET static int rans_decode(const uint8_t *segment, size_t length, uint32_t groups,
                                 const uw_decoder_entry *table, uw_contexts contexts, uint8_t *out)
{
    if (length < UW_STATE_BYTES || length % 2)
        return -1;
    const uint8_t *words = segment + UW_STATE_BYTES, *end = segment + length;
    const __m256i byte_mask = _mm256_set1_epi32(255);
    __m256i state[4];
    for (int v = 0; v < 4; v++)
        state[v] = _mm256_loadu_si256((const __m256i *)segment + v);
    /* A group takes at most 128 words, and the last load reads eight from wherever it stands. */
    for (; groups && end - words >= 2 * (UW_GROUP + 8); groups--, out += UW_GROUP) {
        __m256i symbols[4], context_bytes[4];
        for (int v = 0; v < 4; v++) {
            symbols[v] = _mm256_setzero_si256();
            context_bytes[v] = context_bytes_of(contexts, v);
        }
        for (int round = 0; round < 4; round++) {
            __m128i shift = _mm_cvtsi32_si128(8 * round);
            for (int v = 0; v < 4; v++) {
                __m256i context_offset = _mm256_slli_epi32(
                    _mm256_and_si256(_mm256_srl_epi32(context_bytes[v], shift), byte_mask), UW_PROB_BITS);
                __m256i entry = decode_round(table, context_offset, &state[v], &words);
                symbols[v] = _mm256_or_si256(
                    symbols[v], _mm256_sll_epi32(_mm256_and_si256(entry, byte_mask), shift));
            }
        }
        for (int v = 0; v < 4; v++)
            _mm256_storeu_si256((__m256i *)out + v, symbols[v]);
        contexts = uw_contexts_at(contexts, UW_GROUP);
    }
    uint32_t states[UW_LANES];
    for (int v = 0; v < 4; v++)
        _mm256_storeu_si256((__m256i *)states + v, state[v]);
    return uw_rans_decode_groups(words, end, groups, table, contexts, states, out);
}

/* Scalar: compressing the refill words out of a register is what AVX2 lacks. */
static uint8_t *rans_encode(const uint8_t *symbols, uint32_t groups, const uw_encoder_entry *table,
                            uw_contexts contexts, uint8_t *end)
{
    return uw_portable.rans_encode(symbols, groups, table, contexts, end);
}

const uw_kernel uw_avx2 = {
    .name = "avx2",
    .rans_decode = rans_decode,
    .rans_encode = rans_encode,
    .split = split,
    .join = join,
    .pack_bits = pack_bits,
    .unpack_bits = unpack_bits,
    .quantise = quantise,
    .find_nearest = find_nearest,
    .dequantise = dequantise,
    .predict = predict,
    .squared_error = squared_error,
};
#endif
