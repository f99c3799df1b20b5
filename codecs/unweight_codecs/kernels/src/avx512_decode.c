/* AVX-512 decoding: rANS, alone and fused with joining 16-bit floats. */
#if defined(__x86_64__)
#include "avx512.h"

/* The lanes of one chunk: states 0-15 and 16-31, and the words to refill them from. */
typedef struct {
    __m512i low, high;
    const uint8_t *words, *end;
} lanes;

UW_TARGET UW_INLINE int start_lanes(lanes *l, const uint8_t *segment, size_t length)
{
    if (length < UW_STATE_BYTES || length % 2)
        return -1;
    l->low = _mm512_loadu_si512(segment);
    l->high = _mm512_loadu_si512(segment + 64);
    l->words = segment + UW_STATE_BYTES;
    l->end = segment + length;
    return 0;
}

/* A group takes at most 128 words, and the last load reads sixteen from wherever it stands. */
UW_TARGET UW_INLINE int group_ready(const lanes *l)
{
    return l->end - l->words >= 2 * (UW_GROUP + 16);
}

UW_TARGET UW_INLINE int finish_lanes(const lanes *l, uint32_t groups, const uw_decoder_entry *table,
                                     uw_contexts contexts, uint8_t *out)
{
    uint32_t states[UW_LANES];
    _mm512_storeu_si512(states, l->low);
    _mm512_storeu_si512(states + 16, l->high);
    return uw_rans_decode_groups(l->words, l->end, groups, table, contexts, states, out);
}

UW_TARGET UW_INLINE __m512i decode_round(const uw_decoder_entry *table, __m512i context_offset, __m512i *state,
                                        const uint8_t **words)
{
    const __m512i slot_mask = _mm512_set1_epi32(UW_SLOTS - 1);
    __m512i index = _mm512_add_epi32(_mm512_and_si512(*state, slot_mask), context_offset);
    __m512i entry = _mm512_i32gather_epi32(index, table, 4);
    __m512i frequency = _mm512_add_epi32(_mm512_and_si512(_mm512_srli_epi32(entry, 8), slot_mask),
                                         _mm512_set1_epi32(1));
    __m512i next = _mm512_add_epi32(
        _mm512_mullo_epi32(frequency, _mm512_srli_epi32(*state, UW_PROB_BITS)),
        _mm512_srli_epi32(entry, 20));
    __mmask16 low = _mm512_cmplt_epu32_mask(next, _mm512_set1_epi32(UW_STATE_LOW));
    __m512i fresh = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)*words));
    fresh = _mm512_maskz_expand_epi32(low, fresh);
    *state = _mm512_or_si512(_mm512_mask_slli_epi32(next, low, next, 16), fresh);
    *words += 2 * (uint32_t)_mm_popcnt_u32(low);
    return entry;
}

UW_TARGET UW_INLINE __m512i context_offset_of(__m512i context_bytes, uint32_t round)
{
    __m512i byte = _mm512_and_si512(_mm512_srli_epi32(context_bytes, 8 * round), _mm512_set1_epi32(255));
    return _mm512_slli_epi32(byte, UW_PROB_BITS);
}

/* Decodes one group of one or two chunks: 128 symbols each, in order, in two registers per chunk.
 * Without contexts the context registers are constant zeroes, which the compiler removes. */
UW_TARGET UW_INLINE void decode_group(lanes *l, const int chunks, const uw_decoder_entry *const *table,
                                      const uw_contexts *contexts, const int with_contexts,
                                      __m512i (*symbols)[2])
{
    const __m512i byte_mask = _mm512_set1_epi32(255), zero = _mm512_setzero_si512();
    __m512i context_bytes[2][2];
    for (int c = 0; c < chunks; c++)
        for (int half = 0; half < 2; half++) {
            symbols[c][half] = zero;
            context_bytes[c][half] = with_contexts ? context_bytes_of(contexts[c], half) : zero;
        }
#pragma GCC unroll 4
    for (uint32_t round = 0; round < 4; round++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
#pragma GCC unroll 2
            for (int c = 0; c < chunks; c++) {
                __m512i offset = with_contexts ? context_offset_of(context_bytes[c][half], round) : zero;
                __m512i entry =
                    decode_round(table[c], offset, half ? &l[c].high : &l[c].low, &l[c].words);
                entry = _mm512_slli_epi32(_mm512_and_si512(entry, byte_mask), 8 * round);
                symbols[c][half] = _mm512_or_si512(symbols[c][half], entry);
            }
}

UW_TARGET UW_INLINE int rans_decode_of(const uint8_t *const *segment, const size_t *length, const int chunks,
                                       uint32_t groups, const uw_decoder_entry *const *table,
                                       const uw_contexts *contexts, const int with_contexts,
                                       uint8_t *const *out)
{
    lanes l[2];
    uint32_t group = 0;
    for (int c = 0; c < chunks; c++)
        if (start_lanes(&l[c], segment[c], length[c]))
            return -1;
    for (; group < groups && group_ready(&l[0]) && group_ready(&l[chunks - 1]); group++) {
        const size_t at = (size_t)group * UW_GROUP;
        uw_contexts part[2] = {{NULL, 0}, {NULL, 0}};
        __m512i symbols[2][2];
        for (int c = 0; c < chunks && with_contexts; c++)
            part[c] = uw_contexts_at(contexts[c], at);
        decode_group(l, chunks, table, part, with_contexts, symbols);
        for (int c = 0; c < chunks; c++) {
            _mm512_storeu_si512(out[c] + at, symbols[c][0]);
            _mm512_storeu_si512(out[c] + at + 64, symbols[c][1]);
        }
    }
    for (int c = 0; c < chunks; c++) {
        const size_t at = (size_t)group * UW_GROUP;
        if (finish_lanes(&l[c], groups - group, table[c], uw_contexts_at(contexts[c], at), out[c] + at))
            return -1;
    }
    return 0;
}

UW_TARGET int uw_avx512_decode_pair(const uint8_t *const segment[2], const size_t length[2],
                                      uint32_t groups, const uw_decoder_entry *const table[2],
                                      const uw_contexts contexts[2], uint8_t *const out[2])
{
    if (contexts[0].of)
        return rans_decode_of(segment, length, 2, groups, table, contexts, 1, out);
    return rans_decode_of(segment, length, 2, groups, table, contexts, 0, out);
}

UW_TARGET int uw_avx512_decode(const uint8_t *segment, size_t length, uint32_t groups,
                                 const uw_decoder_entry *table, uw_contexts contexts, uint8_t *out)
{
    if (contexts.of)
        return rans_decode_of(&segment, &length, 1, groups, &table, &contexts, 1, &out);
    return rans_decode_of(&segment, &length, 1, groups, &table, &contexts, 0, &out);
}

/* Puts escaped exponents into 64 words just written. Returns -1 when the stream runs out. */
UW_TARGET static int patch64(const uw_split_spec *spec, uint64_t mask, const uint8_t **escape,
                             const uint8_t *escape_end, uw_u16 *out)
{
    const uint16_t field = (uint16_t)(((1u << spec->exponent_bits) - 1) << spec->mantissa_bits);
    for (; mask; mask &= mask - 1) {
        uint32_t at = (uint32_t)_tzcnt_u64(mask);
        if (*escape == escape_end)
            return -1;
        uint16_t exponent = (uint16_t)(*(*escape)++ << spec->mantissa_bits);
        out[at] = (uint16_t)((out[at] & ~field) | (exponent & field));
    }
    return 0;
}

/* The last groups of a chunk, where full-width loads could leave the buffer: through its parts.
 * A chunk of so few words that its whole end looks like a tail is left to the unfused way. */
UW_TARGET static int finish16(const lanes *l, uint32_t group, uint32_t groups, const uw_decoder_entry *table,
                              uw_contexts contexts, const uint8_t *coded, const uw_chunk16 *chunk,
                              const uw_split_spec *spec, const uint8_t *escape, uw_u16 *out)
{
    enum { TAIL = 64 * UW_GROUP };
    const uint32_t low_plane = spec->mantissa_bits - spec->top_bits + 1 > 8;
    const uint32_t raw_bits = spec->mantissa_bits - spec->top_bits + 1;
    const uint32_t width = raw_bits % 8 ? raw_bits % 8 : 8;
    const uint8_t *escape_end = coded + chunk->escape + chunk->escape_count;
    const size_t first = (size_t)group * UW_GROUP, count = chunk->symbol.count - first;
    uint8_t symbols[TAIL], top[TAIL];
    if ((size_t)(groups - group) * UW_GROUP > TAIL)
        return UW_UNFUSED;
    if (finish_lanes(l, groups - group, table, uw_contexts_at(contexts, first), symbols))
        return -1;
    const uint8_t *packed = coded + chunk->plane[low_plane] + first / 8 * width;
    uw_avx512.unpack_bits(packed, (count * width + 7) / 8, count, width, top);
    const uint8_t *planes[8] = {low_plane ? coded + chunk->plane[0] + first : top};
    uw_avx512.join(symbols, planes, top, count, spec, (uint8_t *)(out + first));
    uint64_t left = (uint64_t)(escape_end - escape);
    return uw_patch_escapes(symbols, count, spec, escape, left, (uint8_t *)(out + first)) == left ? 0 : -1;
}

UW_TARGET UW_INLINE int decode16_of(const uint8_t *coded, const uw_chunk16 *const *chunk, const int chunks,
                                    const uw_decoder_entry *const *table, const uw_contexts *contexts,
                                    const int with_contexts, const uw_split_spec *spec, uw_u16 *const *out)
{
    const join16 j = join16_for(spec);
    const uint32_t groups = (chunk[0]->symbol.count + UW_GROUP - 1) / UW_GROUP;
    const __m512i limit = _mm512_set1_epi8((char)j.limit);
    lanes l[2];
    const uint8_t *escape[2], *escape_end[2], *low[2], *top[2];
    for (int c = 0; c < chunks; c++) {
        if (start_lanes(&l[c], coded + chunk[c]->symbol.offset, chunk[c]->symbol.length))
            return -1;
        escape[c] = coded + chunk[c]->escape;
        escape_end[c] = escape[c] + chunk[c]->escape_count;
        low[c] = coded + chunk[c]->plane[0];
        top[c] = coded + chunk[c]->plane[j.low_plane];
    }
    uint32_t group = 0;
    /* The top plane's loads read 64 bytes: the last eight groups of a plane of one bit are left. */
    for (; group + 8 < groups && group_ready(&l[0]) && group_ready(&l[chunks - 1]); group++) {
        const size_t at = (size_t)group * UW_GROUP;
        uw_contexts part[2] = {{NULL, 0}, {NULL, 0}};
        __m512i symbols[2][2];
        for (int c = 0; c < chunks && with_contexts; c++)
            part[c] = uw_contexts_at(contexts[c], at);
        decode_group(l, chunks, table, part, with_contexts, symbols);
#pragma GCC unroll 2
        for (int c = 0; c < chunks; c++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                const size_t word = at + 64 * (size_t)half;
                join_store(&j, symbols[c][half], low[c] + word, top[c] + word / 8 * j.width, out[c] + word);
                uint64_t escaped = _mm512_cmpge_epu8_mask(symbols[c][half], limit);
                if (escaped && patch64(spec, escaped, &escape[c], escape_end[c], out[c] + word))
                    return -1;
            }
    }
    int status = 0;
    for (int c = 0; c < chunks && status == 0; c++)
        status = finish16(&l[c], group, groups, table[c], contexts[c], coded,
                          chunk[c], spec, escape[c], out[c]);
    return status;
}

UW_TARGET int uw_avx512_decode16(const uint8_t *coded, const uw_chunk16 *const *chunk, int chunks,
                              const uw_decoder_entry *const *table, const uw_contexts *contexts,
                              const uw_split_spec *spec, uw_u16 *const *out)
{
    if (chunks == 1)
        return contexts[0].of ? decode16_of(coded, chunk, 1, table, contexts, 1, spec, out)
                          : decode16_of(coded, chunk, 1, table, contexts, 0, spec, out);
    return contexts[0].of ? decode16_of(coded, chunk, 2, table, contexts, 1, spec, out)
                      : decode16_of(coded, chunk, 2, table, contexts, 0, spec, out);
}
#endif
