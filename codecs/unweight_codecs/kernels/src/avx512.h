/* What the AVX-512 kernels share (F, BW, DQ, VL, VBMI, VBMI2: Ice Lake and Zen 4 upwards). */
#ifndef UNWEIGHT_AVX512_H
#define UNWEIGHT_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "unweight.h"

#define UW_TARGET \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")))

/* rANS: avx512_decode.c, avx512_encode.c. */
int uw_avx512_decode(const uint8_t *segment, size_t length, uint32_t groups, const uw_decoder_entry *table,
                     uw_contexts contexts, uint8_t *out);
int uw_avx512_decode_pair(const uint8_t *const segment[2], const size_t length[2], uint32_t groups,
                          const uw_decoder_entry *const table[2], const uw_contexts contexts[2],
                          uint8_t *const out[2]);
int uw_avx512_decode16(const uint8_t *coded, const uw_chunk16 *const *chunk, int chunks,
                       const uw_decoder_entry *const *table, const uw_contexts *contexts,
                       const uw_split_spec *spec, uw_u16 *const *out);
uint8_t *uw_avx512_encode(const uint8_t *symbols, uint32_t groups, const uw_encoder_entry *table,
                          uw_contexts contexts, uint8_t *end);
void uw_avx512_encode_pair(const uint8_t *const symbols[2], uint32_t groups,
                           const uw_encoder_entry *const table[2], const uw_contexts contexts[2],
                           uint8_t *const end[2], uint8_t *start[2]);

/* The contexts of 64 symbols, a byte each: half 0 or 1 of a group. */
UW_TARGET UW_INLINE __m512i context_bytes_of(uw_contexts contexts, int half)
{
    if (contexts.shift == 0)
        return _mm512_loadu_si512(contexts.of + 64 * half);
    __m256i first = _mm256_set1_epi8((char)contexts.of[2 * half]);
    __m256i second = _mm256_set1_epi8((char)contexts.of[2 * half + 1]);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

/* Which bytes hold the eight values of every 64-bit lane, and where in it each value starts. */
UW_TARGET UW_INLINE __m512i unpack_order(uint32_t width)
{
    const __m512i byte_in_lane = _mm512_set1_epi64(0x0706050403020100);
    const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    __m512i first = _mm512_mullo_epi64(lane, _mm512_set1_epi64((long long)(width * 0x0101010101010101u)));
    return _mm512_add_epi8(byte_in_lane, first);
}

UW_TARGET UW_INLINE __m512i unpack_shifts(uint32_t width)
{
    return _mm512_set1_epi64((long long)(0x0706050403020100u * width));
}

UW_TARGET UW_INLINE __m512i unpack64(__m512i packed, __m512i order, __m512i shifts, __m512i mask)
{
    __m512i spread = _mm512_permutexvar_epi8(order, packed);
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, spread), mask);
}

/* What joining 64 symbols to their raw bits needs, per tensor. */
typedef struct {
    __m512i base, low_mask, sign_mask, order, shifts, top_mask;
    __m128i low_bits, sign_shift;
    uint32_t low_plane, limit, width;
} join16;

UW_TARGET UW_INLINE join16 join16_for(const uw_split_spec *spec)
{
    const uint32_t low_bits = spec->mantissa_bits - spec->top_bits;
    const uint32_t width = (low_bits + 1) % 8 ? (low_bits + 1) % 8 : 8;
    return (join16){
        .base = _mm512_set1_epi16((short)(spec->base << spec->top_bits)),
        .low_mask = _mm512_set1_epi16((short)((1u << low_bits) - 1)),
        .sign_mask = _mm512_set1_epi16((short)0x8000),
        .order = unpack_order(width),
        .shifts = unpack_shifts(width),
        .top_mask = _mm512_set1_epi8((char)((1u << width) - 1)),
        .low_bits = _mm_cvtsi32_si128((int)low_bits),
        .sign_shift = _mm_cvtsi32_si128((int)(15 - low_bits)),
        .low_plane = low_bits + 1 > 8,
        .limit = spec->window << spec->top_bits,
        .width = width,
    };
}

UW_TARGET UW_INLINE __m512i join32(const join16 *j, __m256i symbols, __m512i raw)
{
    /* The window may reach past the last exponent only in damaged files; the sign stays clean. */
    __m512i value = _mm512_add_epi16(_mm512_cvtepu8_epi16(symbols), j->base);
    __m512i word = _mm512_andnot_si512(j->sign_mask, _mm512_sll_epi16(value, j->low_bits));
    word = _mm512_or_si512(word, _mm512_and_si512(raw, j->low_mask));
    return _mm512_or_si512(word, _mm512_and_si512(_mm512_sll_epi16(raw, j->sign_shift), j->sign_mask));
}

/* Writes 64 words. `top` and `low` point at the planes' bytes of these words. */
UW_TARGET UW_INLINE void join_store(const join16 *j, __m512i symbols, const uint8_t *low,
                                    const uint8_t *top, uw_u16 *out)
{
    __m512i bits = unpack64(_mm512_loadu_si512(top), j->order, j->shifts, j->top_mask);
    __m512i raw0 = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bits));
    __m512i raw1 = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bits, 1));
    if (j->low_plane) {
        raw0 = _mm512_or_si512(_mm512_slli_epi16(raw0, 8),
                               _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)low)));
        raw1 = _mm512_or_si512(_mm512_slli_epi16(raw1, 8),
                               _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(low + 32))));
    }
    _mm512_storeu_si512(out, join32(j, _mm512_castsi512_si256(symbols), raw0));
    _mm512_storeu_si512(out + 32, join32(j, _mm512_extracti64x4_epi64(symbols, 1), raw1));
}

#endif
