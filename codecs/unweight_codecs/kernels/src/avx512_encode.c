/* AVX-512 encoding: rANS. */
#if defined(__x86_64__)
#include "avx512.h"

/* Frequency, start and reciprocal of 16 symbols. */
typedef struct {
    __m512i entry;
    __m512 reciprocal;
} entry16;

/* Alphabets of up to 64 symbols lie in four registers each, larger ones and contexts are gathered. */
typedef struct {
    const uw_encoder_entry *table;
    __m512i entry[4];
    __m512i reciprocal[4];
} entry_table;

UW_TARGET UW_INLINE entry_table load_entries(const uw_encoder_entry *table)
{
    entry_table t = {.table = table};
    for (int i = 0; i < 4; i++) {
        t.entry[i] = _mm512_loadu_si512(table + 16 * i);
        t.reciprocal[i] = _mm512_loadu_si512(table + UW_RECIPROCALS + 16 * i);
    }
    return t;
}

UW_TARGET UW_INLINE __m512i lookup64(const __m512i table[4], __m512i index, __mmask16 upper)
{
    __m512i low = _mm512_permutex2var_epi32(table[0], index, table[1]);
    __m512i high = _mm512_permutex2var_epi32(table[2], index, table[3]);
    return _mm512_mask_mov_epi32(low, upper, high);
}

UW_TARGET UW_INLINE entry16 find_entries(const entry_table *t, __m512i symbols, __m512i contexts, const int small)
{
    if (small) {
        __mmask16 upper = _mm512_test_epi32_mask(symbols, _mm512_set1_epi32(32));
        return (entry16){lookup64(t->entry, symbols, upper),
                        _mm512_castsi512_ps(lookup64(t->reciprocal, symbols, upper))};
    }
    __m512i index = _mm512_add_epi32(symbols, _mm512_mullo_epi32(contexts, _mm512_set1_epi32(UW_ENCODER_ENTRIES)));
    return (entry16){_mm512_i32gather_epi32(index, t->table, 4),
                    _mm512_i32gather_ps(index, t->table + UW_RECIPROCALS, 4)};
}

/* State / frequency for 16 lanes, exactly. The state is below frequency << 20, so the quotient is below
 * 2^20; conversion, reciprocal and product all round towards zero with a relative error below 2^-23
 * each, so the float quotient is right or one too small. */
UW_TARGET UW_INLINE void divide(__m512i state, __m512i frequency, __m512 reciprocal, __m512i *quotient,
                                __m512i *remainder)
{
    enum { TRUNCATE = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC };
    __m512 ratio = _mm512_mul_round_ps(_mm512_cvt_roundepu32_ps(state, TRUNCATE), reciprocal, TRUNCATE);
    __m512i q = _mm512_cvttps_epu32(ratio);
    __m512i r = _mm512_sub_epi32(state, _mm512_mullo_epi32(q, frequency));
    __mmask16 short_by_one = _mm512_cmpge_epu32_mask(r, frequency);
    *quotient = _mm512_mask_add_epi32(q, short_by_one, q, _mm512_set1_epi32(1));
    *remainder = _mm512_mask_sub_epi32(r, short_by_one, r, frequency);
}

/* Words that leave 16 full lanes; `full` says which. Clears `valid` when a symbol has no frequency. */
UW_TARGET UW_INLINE __m256i full_words(entry16 found, __m512i state, __mmask16 *full, __mmask16 *valid)
{
    __m512i frequency = _mm512_and_si512(found.entry, _mm512_set1_epi32(0xffff));
    *valid &= _mm512_test_epi32_mask(frequency, frequency);
    *full = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(state, 20), frequency);
    return _mm512_cvtepi32_epi16(state);
}

UW_TARGET UW_INLINE __m512i next_state(entry16 found, __m512i state, __mmask16 full)
{
    __m512i frequency = _mm512_and_si512(found.entry, _mm512_set1_epi32(0xffff));
    __m512i quotient, remainder;
    divide(_mm512_mask_srli_epi32(state, full, state, 16), frequency, found.reciprocal, &quotient, &remainder);
    return _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(quotient, UW_PROB_BITS), remainder),
                            _mm512_srli_epi32(found.entry, 16));
}

UW_TARGET UW_INLINE __m512i byte_of(__m512i bytes, uint32_t round)
{
    return _mm512_and_si512(_mm512_srli_epi32(bytes, 8 * round), _mm512_set1_epi32(255));
}

/* One chunk being encoded, last group first. `seen` collects the bits of all symbols. */
typedef struct {
    __m512i low, high, seen;
    __mmask16 valid;
    uint8_t *end;
} encoder;

/* Encodes the symbols of one round of all lanes: byte `round` of each lane's four. */
UW_TARGET UW_INLINE void encode_lanes(encoder *e, const entry_table *t, const uint8_t *symbols,
                                      uw_contexts contexts, const int small, uint32_t round)
{
    __m512i context_low = _mm512_setzero_si512(), context_high = context_low;
    if (!small && contexts.of) {
        context_low = byte_of(context_bytes_of(contexts, 0), round);
        context_high = byte_of(context_bytes_of(contexts, 1), round);
    }
    __m512i high = byte_of(_mm512_loadu_si512(symbols + 64), round);
    __m512i low = byte_of(_mm512_loadu_si512(symbols), round);
    const entry16 low_entry = find_entries(t, low, context_low, small);
    const entry16 high_entry = find_entries(t, high, context_high, small);
    __mmask16 low_full, high_full;
    __m256i low_words = full_words(low_entry, e->low, &low_full, &e->valid);
    __m256i high_words = full_words(high_entry, e->high, &high_full, &e->valid);
    const __mmask32 full = _mm512_kunpackw(high_full, low_full);
    __m512i words = _mm512_inserti64x4(_mm512_castsi256_si512(low_words), high_words, 1);
    const uint32_t count = (uint32_t)_mm_popcnt_u32(full);
    e->end -= 2 * count;
    _mm512_mask_storeu_epi16(e->end, (__mmask32)_bzhi_u32(0xffffffffu, count),
                             _mm512_maskz_compress_epi16(full, words));
    e->low = next_state(low_entry, e->low, low_full);
    e->high = next_state(high_entry, e->high, high_full);
}

UW_TARGET UW_INLINE void rans_encode_of(const uint8_t *const *symbols, const int chunks, uint32_t groups,
                                        const uw_encoder_entry *const *table, const uw_contexts *contexts,
                                        const int small, uint8_t *const *end, uint8_t **start)
{
    const __m512i first = _mm512_set1_epi32(UW_STATE_LOW);
    encoder e[2];
    entry_table t[2];
    for (int c = 0; c < chunks; c++) {
        e[c] = (encoder){first, first, _mm512_setzero_si512(), 0xffff, end[c]};
        t[c] = load_entries(table[c]);
    }
    for (size_t at = (size_t)groups * UW_GROUP; at > 0;) {
        at -= UW_GROUP;
        for (int c = 0; c < chunks; c++) {
            e[c].seen = _mm512_or_si512(e[c].seen, _mm512_loadu_si512(symbols[c] + at));
            e[c].seen = _mm512_or_si512(e[c].seen, _mm512_loadu_si512(symbols[c] + at + 64));
        }
        for (uint32_t round = 4; round-- > 0;)
#pragma GCC unroll 2
            for (int c = 0; c < chunks; c++)
                encode_lanes(&e[c], &t[c], symbols[c] + at, uw_contexts_at(contexts[c], at), small, round);
    }
    for (int c = 0; c < chunks; c++) {
        start[c] = e[c].end - UW_STATE_BYTES;
        _mm512_storeu_si512(start[c], e[c].low);
        _mm512_storeu_si512(start[c] + 64, e[c].high);
        /* A symbol beyond a small table would have found the entry of another one. */
        if (e[c].valid != 0xffff || (small && _mm512_test_epi8_mask(e[c].seen, _mm512_set1_epi8((char)0xc0))))
            start[c] = NULL;
    }
}

UW_TARGET uint8_t *uw_avx512_encode(const uint8_t *symbols, uint32_t groups, const uw_encoder_entry *table,
                                      uw_contexts contexts, uint8_t *end)
{
    uint8_t *start;
    if (!contexts.of && table[UW_USED] <= 64)
        rans_encode_of(&symbols, 1, groups, &table, &contexts, 1, &end, &start);
    else
        rans_encode_of(&symbols, 1, groups, &table, &contexts, 0, &end, &start);
    return start;
}

/* The rounds of a chunk depend on each other; a second chunk fills the gaps. */
UW_TARGET void uw_avx512_encode_pair(const uint8_t *const symbols[2], uint32_t groups,
                                       const uw_encoder_entry *const table[2], const uw_contexts contexts[2],
                                       uint8_t *const end[2], uint8_t *start[2])
{
    if (!contexts[0].of && table[0][UW_USED] <= 64 && table[1][UW_USED] <= 64)
        rans_encode_of(symbols, 2, groups, table, contexts, 1, end, start);
    else
        rans_encode_of(symbols, 2, groups, table, contexts, 0, end, start);
}
#endif
