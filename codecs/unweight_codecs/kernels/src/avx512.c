/* The table of AVX-512 kernels, and those for planes and bits. */
#if defined(__x86_64__)
#include "avx512.h"
#include "planes.inc.h"
#include "levels.inc.h"

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

/* Symbols of 32 words, and their raw bits. */
UW_TARGET UW_INLINE __m256i split32(const join16 *j, const uw_split_spec *spec, __m512i words, __m512i *raw)
{
    const __m512i value_mask =
        _mm512_set1_epi16((short)((1u << (spec->exponent_bits + spec->top_bits)) - 1));
    const __m512i top_mask = _mm512_set1_epi16((short)((1u << spec->top_bits) - 1));
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

UW_TARGET static uint64_t split16(const uint8_t *words, size_t count, const uw_split_spec *spec,
                                  uint8_t *symbols, uint8_t *low, uint8_t *top, uint8_t *escapes)
{
    const join16 j = join16_for(spec);
    const uint32_t rest = (spec->mantissa_bits - spec->top_bits + 1) % 8;
    const uint64_t pack_mask = ((1ull << rest) - 1) * 0x0101010101010101u;
    const __m128i mantissa = _mm_cvtsi32_si128((int)spec->mantissa_bits);
    const __m512i limit = _mm512_set1_epi8((char)j.limit);
    uint8_t *escape = escapes;
    for (size_t at = 0; at < count; at += 64) {
        const size_t left = count - at;
        const __mmask32 first = left >= 32 ? 0xffffffffu : (1u << left) - 1;
        const __mmask32 second = left >= 64 ? 0xffffffffu : left <= 32 ? 0 : (1u << (left - 32)) - 1;
        __m512i w0 = _mm512_maskz_loadu_epi16(first, words + 2 * at);
        __m512i w1 = _mm512_maskz_loadu_epi16(second, words + 2 * (at + 32));
        __m512i raw0, raw1;
        __m256i s0 = split32(&j, spec, w0, &raw0), s1 = split32(&j, spec, w1, &raw1);
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
            const uint32_t field = (1u << spec->exponent_bits) - 1;
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
    .rans_decode = uw_avx512_decode,
    .rans_decode_pair = uw_avx512_decode_pair,
    .rans_encode = uw_avx512_encode,
    .rans_encode_pair = uw_avx512_encode_pair,
    .split = split,
    .join = join,
    .pack_bits = pack_bits_avx512,
    .unpack_bits = unpack_bits_avx512,
    .quantise = quantise,
    .find_nearest = find_nearest,
    .dequantise = dequantise,
    .predict = predict,
    .squared_error = squared_error,
    .decode16 = uw_avx512_decode16,
    .split16 = split16,
};
#endif
