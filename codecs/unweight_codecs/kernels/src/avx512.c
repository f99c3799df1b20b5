/* AVX-512 kernels (F, BW, DQ, VL, VBMI, VBMI2: Ice Lake and Zen 4 upwards). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "unweight.h"

#define UW_TARGET \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")))
#include "planes.inc.h"

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

UW_TARGET UW_INLINE int finish_lanes(const lanes *l, uint32_t groups, const uw_slot *table,
                                     const uint8_t *classes, uint8_t *out)
{
    uint32_t states[UW_LANES];
    _mm512_storeu_si512(states, l->low);
    _mm512_storeu_si512(states + 16, l->high);
    return uw_rans_decode_groups(l->words, l->end, groups, table, classes, states, out);
}

UW_TARGET UW_INLINE __m512i decode_step(const uw_slot *table, __m512i class_offset, __m512i *state,
                                        const uint8_t **words)
{
    const __m512i slot_mask = _mm512_set1_epi32(UW_SLOTS - 1);
    __m512i index = _mm512_add_epi32(_mm512_and_si512(*state, slot_mask), class_offset);
    __m512i slot = _mm512_i32gather_epi32(index, table, 4);
    __m512i frequency = _mm512_add_epi32(_mm512_and_si512(_mm512_srli_epi32(slot, 8), slot_mask),
                                         _mm512_set1_epi32(1));
    __m512i next = _mm512_add_epi32(
        _mm512_mullo_epi32(frequency, _mm512_srli_epi32(*state, UW_PROB_BITS)),
        _mm512_srli_epi32(slot, 20));
    __mmask16 low = _mm512_cmplt_epu32_mask(next, _mm512_set1_epi32(UW_STATE_LOW));
    __m512i fresh = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)*words));
    fresh = _mm512_maskz_expand_epi32(low, fresh);
    *state = _mm512_or_si512(_mm512_mask_slli_epi32(next, low, next, 16), fresh);
    *words += 2 * (uint32_t)_mm_popcnt_u32(low);
    return slot;
}

UW_TARGET UW_INLINE __m512i class_offset_of(__m512i class_bytes, int step)
{
    __m512i byte = _mm512_and_si512(_mm512_srli_epi32(class_bytes, 8 * step), _mm512_set1_epi32(255));
    return _mm512_slli_epi32(byte, UW_PROB_BITS);
}

/* Decodes one group of one or two chunks: 128 symbols each, in order, in two registers per chunk.
 * Without classes the class registers are constant zeroes, which the compiler removes. */
UW_TARGET UW_INLINE void decode_group(lanes *l, const int chunks, const uw_slot *const *table,
                                      const uint8_t *const *classes, const int with_classes,
                                      __m512i (*symbols)[2])
{
    const __m512i byte_mask = _mm512_set1_epi32(255), zero = _mm512_setzero_si512();
    __m512i class_bytes[2][2];
    for (int c = 0; c < chunks; c++)
        for (int half = 0; half < 2; half++) {
            symbols[c][half] = zero;
            class_bytes[c][half] = with_classes ? _mm512_loadu_si512(classes[c] + 64 * half) : zero;
        }
#pragma GCC unroll 4
    for (int step = 0; step < 4; step++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
#pragma GCC unroll 2
            for (int c = 0; c < chunks; c++) {
                __m512i offset = with_classes ? class_offset_of(class_bytes[c][half], step) : zero;
                __m512i slot =
                    decode_step(table[c], offset, half ? &l[c].high : &l[c].low, &l[c].words);
                slot = _mm512_slli_epi32(_mm512_and_si512(slot, byte_mask), 8 * step);
                symbols[c][half] = _mm512_or_si512(symbols[c][half], slot);
            }
}

UW_TARGET UW_INLINE int rans_decode_of(const uint8_t *const *segment, const size_t *length, const int chunks,
                                       uint32_t groups, const uw_slot *const *table,
                                       const uint8_t *const *classes, const int with_classes,
                                       uint8_t *const *out)
{
    lanes l[2];
    uint32_t group = 0;
    for (int c = 0; c < chunks; c++)
        if (start_lanes(&l[c], segment[c], length[c]))
            return -1;
    for (; group < groups && group_ready(&l[0]) && group_ready(&l[chunks - 1]); group++) {
        const size_t at = (size_t)group * UW_GROUP;
        const uint8_t *part[2] = {NULL, NULL};
        __m512i symbols[2][2];
        for (int c = 0; c < chunks && with_classes; c++)
            part[c] = classes[c] + at;
        decode_group(l, chunks, table, part, with_classes, symbols);
        for (int c = 0; c < chunks; c++) {
            _mm512_storeu_si512(out[c] + at, symbols[c][0]);
            _mm512_storeu_si512(out[c] + at + 64, symbols[c][1]);
        }
    }
    for (int c = 0; c < chunks; c++) {
        const size_t at = (size_t)group * UW_GROUP;
        if (finish_lanes(&l[c], groups - group, table[c], with_classes ? classes[c] + at : NULL, out[c] + at))
            return -1;
    }
    return 0;
}

UW_TARGET static int rans_decode_pair(const uint8_t *const segment[2], const size_t length[2],
                                      uint32_t groups, const uw_slot *const table[2],
                                      const uint8_t *const classes[2], uint8_t *const out[2])
{
    if (classes[0])
        return rans_decode_of(segment, length, 2, groups, table, classes, 1, out);
    return rans_decode_of(segment, length, 2, groups, table, classes, 0, out);
}

UW_TARGET static int rans_decode(const uint8_t *segment, size_t length, uint32_t groups,
                                 const uw_slot *table, const uint8_t *classes, uint8_t *out)
{
    if (classes)
        return rans_decode_of(&segment, &length, 1, groups, &table, &classes, 1, &out);
    return rans_decode_of(&segment, &length, 1, groups, &table, &classes, 0, &out);
}

/* Frequency, start and reciprocal of 16 symbols. */
typedef struct {
    __m512i entry;
    __m512 reciprocal;
} step16;

/* Alphabets of up to 64 symbols lie in four registers each, larger ones and classes are gathered. */
typedef struct {
    const uw_step *table;
    __m512i entry[4];
    __m512i reciprocal[4];
} step_table;

UW_TARGET UW_INLINE step_table load_steps(const uw_step *table)
{
    step_table t = {.table = table};
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

UW_TARGET UW_INLINE step16 find_steps(const step_table *t, __m512i symbols, __m512i classes, const int small)
{
    if (small) {
        __mmask16 upper = _mm512_test_epi32_mask(symbols, _mm512_set1_epi32(32));
        return (step16){lookup64(t->entry, symbols, upper),
                        _mm512_castsi512_ps(lookup64(t->reciprocal, symbols, upper))};
    }
    __m512i index = _mm512_add_epi32(symbols, _mm512_mullo_epi32(classes, _mm512_set1_epi32(UW_STEPS)));
    return (step16){_mm512_i32gather_epi32(index, t->table, 4),
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
UW_TARGET UW_INLINE __m256i full_words(step16 step, __m512i state, __mmask16 *full, __mmask16 *valid)
{
    __m512i frequency = _mm512_and_si512(step.entry, _mm512_set1_epi32(0xffff));
    *valid &= _mm512_test_epi32_mask(frequency, frequency);
    *full = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(state, 20), frequency);
    return _mm512_cvtepi32_epi16(state);
}

UW_TARGET UW_INLINE __m512i next_state(step16 step, __m512i state, __mmask16 full)
{
    __m512i frequency = _mm512_and_si512(step.entry, _mm512_set1_epi32(0xffff));
    __m512i quotient, remainder;
    divide(_mm512_mask_srli_epi32(state, full, state, 16), frequency, step.reciprocal, &quotient, &remainder);
    return _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(quotient, UW_PROB_BITS), remainder),
                            _mm512_srli_epi32(step.entry, 16));
}

UW_TARGET UW_INLINE __m512i byte_of(__m512i bytes, uint32_t step)
{
    return _mm512_and_si512(_mm512_srli_epi32(bytes, 8 * step), _mm512_set1_epi32(255));
}

/* One chunk being encoded, last group first. `seen` collects the bits of all symbols. */
typedef struct {
    __m512i low, high, seen;
    __mmask16 valid;
    uint8_t *end;
} encoder;

/* Encodes the symbols of one step of all lanes: byte `step` of each lane's four. */
UW_TARGET UW_INLINE void encode_lanes(encoder *e, const step_table *t, const uint8_t *symbols,
                                      const uint8_t *classes, const int small, uint32_t step)
{
    __m512i class_low = _mm512_setzero_si512(), class_high = class_low;
    if (!small && classes) {
        class_low = byte_of(_mm512_loadu_si512(classes), step);
        class_high = byte_of(_mm512_loadu_si512(classes + 64), step);
    }
    __m512i high = byte_of(_mm512_loadu_si512(symbols + 64), step);
    __m512i low = byte_of(_mm512_loadu_si512(symbols), step);
    const step16 low_step = find_steps(t, low, class_low, small);
    const step16 high_step = find_steps(t, high, class_high, small);
    __mmask16 low_full, high_full;
    __m256i low_words = full_words(low_step, e->low, &low_full, &e->valid);
    __m256i high_words = full_words(high_step, e->high, &high_full, &e->valid);
    const __mmask32 full = _mm512_kunpackw(high_full, low_full);
    __m512i words = _mm512_inserti64x4(_mm512_castsi256_si512(low_words), high_words, 1);
    const uint32_t count = (uint32_t)_mm_popcnt_u32(full);
    e->end -= 2 * count;
    _mm512_mask_storeu_epi16(e->end, (__mmask32)_bzhi_u32(0xffffffffu, count),
                             _mm512_maskz_compress_epi16(full, words));
    e->low = next_state(low_step, e->low, low_full);
    e->high = next_state(high_step, e->high, high_full);
}

UW_TARGET UW_INLINE void rans_encode_of(const uint8_t *const *symbols, const int chunks, uint32_t groups,
                                        const uw_step *const *table, const uint8_t *const *classes,
                                        const int small, uint8_t *const *end, uint8_t **start)
{
    const __m512i first = _mm512_set1_epi32(UW_STATE_LOW);
    encoder e[2];
    step_table t[2];
    for (int c = 0; c < chunks; c++) {
        e[c] = (encoder){first, first, _mm512_setzero_si512(), 0xffff, end[c]};
        t[c] = load_steps(table[c]);
    }
    for (size_t at = (size_t)groups * UW_GROUP; at > 0;) {
        at -= UW_GROUP;
        for (int c = 0; c < chunks; c++) {
            e[c].seen = _mm512_or_si512(e[c].seen, _mm512_loadu_si512(symbols[c] + at));
            e[c].seen = _mm512_or_si512(e[c].seen, _mm512_loadu_si512(symbols[c] + at + 64));
        }
        for (uint32_t step = 4; step-- > 0;)
#pragma GCC unroll 2
            for (int c = 0; c < chunks; c++)
                encode_lanes(&e[c], &t[c], symbols[c] + at, classes[c] ? classes[c] + at : NULL, small, step);
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

UW_TARGET static uint8_t *rans_encode(const uint8_t *symbols, uint32_t groups, const uw_step *table,
                                      const uint8_t *classes, uint8_t *end)
{
    uint8_t *start;
    if (!classes && table[UW_USED] <= 64)
        rans_encode_of(&symbols, 1, groups, &table, &classes, 1, &end, &start);
    else
        rans_encode_of(&symbols, 1, groups, &table, &classes, 0, &end, &start);
    return start;
}

/* The steps of a chunk depend on each other; a second chunk fills the gaps. */
UW_TARGET static void rans_encode_pair(const uint8_t *const symbols[2], uint32_t groups,
                                       const uw_step *const table[2], const uint8_t *const classes[2],
                                       uint8_t *const end[2], uint8_t *start[2])
{
    if (!classes[0] && table[0][UW_USED] <= 64 && table[1][UW_USED] <= 64)
        rans_encode_of(symbols, 2, groups, table, classes, 1, end, start);
    else
        rans_encode_of(symbols, 2, groups, table, classes, 0, end, start);
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

UW_TARGET static void unpack_bits_avx512(const uint8_t *packed, size_t packed_length, size_t count,
                                         uint32_t width, uint8_t *out)
{
    const __m512i order = unpack_order(width), shifts = unpack_shifts(width);
    const __m512i mask = _mm512_set1_epi8((char)((1u << width) - 1));
    size_t i = 0;
    /* Every load reads 64 bytes. */
    for (; i + 64 <= count && i / 8 * width + 64 <= packed_length; i += 64)
        _mm512_storeu_si512(out + i, unpack64(_mm512_loadu_si512(packed + i / 8 * width), order, shifts, mask));
    unpack_bits(packed + i / 8 * width, packed_length - i / 8 * width, count - i, width, out + i);
}

UW_TARGET static void pack_bits_avx512(const uint8_t *values, size_t count, uint32_t width, uint8_t *out)
{
    const uint64_t mask = ((1ull << width) - 1) * 0x0101010101010101u;
    size_t i = 0;
    /* Each store writes eight bytes, of which the next one overwrites the surplus. */
    for (; i + 64 <= count; i += 8) {
        uint64_t eight;
        memcpy(&eight, values + i, 8);
        eight = _pext_u64(eight, mask);
        memcpy(out + i / 8 * width, &eight, 8);
    }
    pack_bits(values + i, count - i, width, out + i / 8 * width);
}

/* What joining 64 symbols to their raw bits needs, per tensor. */
typedef struct {
    __m512i base, low_mask, sign_mask, order, shifts, top_mask;
    __m128i low_bits, sign_shift;
    uint32_t low_plane, limit, width;
} join16;

UW_TARGET UW_INLINE join16 join16_for(const uw_float *format)
{
    const uint32_t low_bits = format->mantissa_bits - format->top_bits;
    const uint32_t width = (low_bits + 1) % 8 ? (low_bits + 1) % 8 : 8;
    return (join16){
        .base = _mm512_set1_epi16((short)(format->base << format->top_bits)),
        .low_mask = _mm512_set1_epi16((short)((1u << low_bits) - 1)),
        .sign_mask = _mm512_set1_epi16((short)0x8000),
        .order = unpack_order(width),
        .shifts = unpack_shifts(width),
        .top_mask = _mm512_set1_epi8((char)((1u << width) - 1)),
        .low_bits = _mm_cvtsi32_si128((int)low_bits),
        .sign_shift = _mm_cvtsi32_si128((int)(15 - low_bits)),
        .low_plane = low_bits + 1 > 8,
        .limit = format->window << format->top_bits,
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
                                    const uint8_t *top, uint16_t *out)
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

/* Puts escaped exponents into 64 words just written. Returns -1 when the stream runs out. */
UW_TARGET static int patch64(const uw_float *format, uint64_t mask, const uint8_t **escape,
                             const uint8_t *escape_end, uint16_t *out)
{
    const uint16_t field = (uint16_t)(((1u << format->exponent_bits) - 1) << format->mantissa_bits);
    for (; mask; mask &= mask - 1) {
        uint32_t at = (uint32_t)_tzcnt_u64(mask);
        if (*escape == escape_end)
            return -1;
        uint16_t exponent = (uint16_t)(*(*escape)++ << format->mantissa_bits);
        out[at] = (uint16_t)((out[at] & ~field) | (exponent & field));
    }
    return 0;
}

/* The last groups of a chunk, where full-width loads could leave the buffer: through its parts.
 * A chunk of so few words that its whole end looks like a tail is left to the unfused way. */
UW_TARGET static int finish16(const lanes *l, uint32_t group, uint32_t groups, const uw_slot *table,
                              const uint8_t *classes, const uint8_t *coded, const uw_chunk16 *chunk,
                              const uw_float *format, const uint8_t *escape, uint16_t *out)
{
    enum { TAIL = 64 * UW_GROUP };
    const uint32_t low_plane = format->mantissa_bits - format->top_bits + 1 > 8;
    const uint32_t raw_bits = format->mantissa_bits - format->top_bits + 1;
    const uint32_t width = raw_bits % 8 ? raw_bits % 8 : 8;
    const uint8_t *escape_end = coded + chunk->escape + chunk->escape_count;
    const size_t first = (size_t)group * UW_GROUP, count = chunk->symbol.count - first;
    uint8_t symbols[TAIL], top[TAIL];
    if ((groups - group) * UW_GROUP > TAIL)
        return UW_UNFUSED;
    if (finish_lanes(l, groups - group, table, classes ? classes + first : NULL, symbols))
        return -1;
    const uint8_t *packed = coded + chunk->plane[low_plane] + first / 8 * width;
    unpack_bits(packed, 0, count, width, top);
    const uint8_t *planes[8] = {low_plane ? coded + chunk->plane[0] + first : top};
    join(symbols, planes, top, count, format, (uint8_t *)(out + first));
    uint64_t left = (uint64_t)(escape_end - escape);
    return uw_patch_escapes(symbols, count, format, escape, left, (uint8_t *)(out + first)) == left ? 0 : -1;
}

UW_TARGET UW_INLINE int decode16_of(const uint8_t *coded, const uw_chunk16 *const *chunk, const int chunks,
                                    const uw_slot *const *table, const uint8_t *const *classes,
                                    const int with_classes, const uw_float *format, uint16_t *const *out)
{
    const join16 j = join16_for(format);
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
        const uint8_t *part[2] = {NULL, NULL};
        __m512i symbols[2][2];
        for (int c = 0; c < chunks && with_classes; c++)
            part[c] = classes[c] + at;
        decode_group(l, chunks, table, part, with_classes, symbols);
#pragma GCC unroll 2
        for (int c = 0; c < chunks; c++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                const size_t word = at + 64 * (size_t)half;
                join_store(&j, symbols[c][half], low[c] + word, top[c] + word / 8 * j.width, out[c] + word);
                uint64_t escaped = _mm512_cmpge_epu8_mask(symbols[c][half], limit);
                if (escaped && patch64(format, escaped, &escape[c], escape_end[c], out[c] + word))
                    return -1;
            }
    }
    int status = 0;
    for (int c = 0; c < chunks && status == 0; c++)
        status = finish16(&l[c], group, groups, table[c], with_classes ? classes[c] : NULL, coded,
                          chunk[c], format, escape[c], out[c]);
    return status;
}

UW_TARGET static int decode16(const uint8_t *coded, const uw_chunk16 *const *chunk, int chunks,
                              const uw_slot *const *table, const uint8_t *const *classes,
                              const uw_float *format, uint16_t *const *out)
{
    if (chunks == 1)
        return classes[0] ? decode16_of(coded, chunk, 1, table, classes, 1, format, out)
                          : decode16_of(coded, chunk, 1, table, classes, 0, format, out);
    return classes[0] ? decode16_of(coded, chunk, 2, table, classes, 1, format, out)
                      : decode16_of(coded, chunk, 2, table, classes, 0, format, out);
}

/* Symbols of 32 words, and their raw bits. */
UW_TARGET UW_INLINE __m256i split32(const join16 *j, const uw_float *format, __m512i words, __m512i *raw)
{
    const __m512i value_mask =
        _mm512_set1_epi16((short)((1u << (format->exponent_bits + format->top_bits)) - 1));
    const __m512i top_mask = _mm512_set1_epi16((short)((1u << format->top_bits) - 1));
    const __m512i limit = _mm512_set1_epi16((short)j->limit);
    __m512i value = _mm512_and_si512(_mm512_srl_epi16(words, j->low_bits), value_mask);
    __m512i symbol = _mm512_sub_epi16(value, j->base);
    __mmask32 escaped = _mm512_cmpge_epu16_mask(symbol, limit);
    symbol = _mm512_mask_mov_epi16(symbol, escaped, _mm512_or_si512(limit, _mm512_and_si512(value, top_mask)));
    __m512i sign = _mm512_srl_epi16(_mm512_and_si512(words, j->sign_mask), j->sign_shift);
    *raw = _mm512_or_si512(_mm512_and_si512(words, j->low_mask), sign);
    return _mm512_cvtepi16_epi8(symbol);
}

/* Packs the low `width` bits of 64 values; writes up to eight bytes more than they take. */
UW_TARGET UW_INLINE void pack64(__m512i values, uint64_t mask, uint32_t width, uint8_t *out)
{
    uint64_t eight[8];
    _mm512_storeu_si512(eight, values);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        uint64_t packed = _pext_u64(eight[i], mask);
        memcpy(out + (size_t)i * width, &packed, 8);
    }
}

UW_TARGET static uint64_t split16(const uint16_t *words, size_t count, const uw_float *format,
                                  uint8_t *symbols, uint8_t *low, uint8_t *top, uint8_t *escapes)
{
    const join16 j = join16_for(format);
    const uint32_t rest = (format->mantissa_bits - format->top_bits + 1) % 8;
    const uint64_t pack_mask = ((1ull << rest) - 1) * 0x0101010101010101u;
    const __m128i mantissa = _mm_cvtsi32_si128((int)format->mantissa_bits);
    const __m512i limit = _mm512_set1_epi8((char)j.limit);
    uint8_t *escape = escapes;
    for (size_t at = 0; at < count; at += 64) {
        const size_t left = count - at;
        const __mmask32 first = left >= 32 ? 0xffffffffu : (1u << left) - 1;
        const __mmask32 second = left >= 64 ? 0xffffffffu : left <= 32 ? 0 : (1u << (left - 32)) - 1;
        __m512i w0 = _mm512_maskz_loadu_epi16(first, words + at);
        __m512i w1 = _mm512_maskz_loadu_epi16(second, words + at + 32);
        __m512i raw0, raw1;
        __m256i s0 = split32(&j, format, w0, &raw0), s1 = split32(&j, format, w1, &raw1);
        __m512i s = _mm512_inserti64x4(_mm512_castsi256_si512(s0), s1, 1);
        const __mmask64 valid = (__mmask64)second << 32 | first;
        _mm512_mask_storeu_epi8(symbols + at, valid, s);
        if (j.low_plane || rest == 0) {
            __m512i bytes = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(raw0)),
                                               _mm512_cvtepi16_epi8(raw1), 1);
            _mm512_mask_storeu_epi8(low + at, valid, bytes);
            raw0 = _mm512_srli_epi16(raw0, 8);
            raw1 = _mm512_srli_epi16(raw1, 8);
        }
        if (rest) {
            __m512i bytes = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(raw0)),
                                               _mm512_cvtepi16_epi8(raw1), 1);
            pack64(bytes, pack_mask, rest, top + at / 8 * rest);
        }
        const __mmask64 escaped = _mm512_mask_cmpge_epu8_mask(valid, s, limit);
        if (escaped) {
            const uint32_t field = (1u << format->exponent_bits) - 1;
            __m512i e0 = _mm512_and_si512(_mm512_srl_epi16(w0, mantissa), _mm512_set1_epi16((short)field));
            __m512i e1 = _mm512_and_si512(_mm512_srl_epi16(w1, mantissa), _mm512_set1_epi16((short)field));
            __m512i e = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(e0)),
                                           _mm512_cvtepi16_epi8(e1), 1);
            _mm512_storeu_si512(escape, _mm512_maskz_compress_epi8(escaped, e));
            escape += _mm_popcnt_u64(escaped);
        }
    }
    return (uint64_t)(escape - escapes);
}

const uw_kernel uw_avx512 = {
    .name = "avx512",
    .rans_decode = rans_decode,
    .rans_decode_pair = rans_decode_pair,
    .rans_encode = rans_encode,
    .rans_encode_pair = rans_encode_pair,
    .split = split,
    .join = join,
    .pack_bits = pack_bits_avx512,
    .unpack_bits = unpack_bits_avx512,
    .decode16 = decode16,
    .split16 = split16,
};
#endif
