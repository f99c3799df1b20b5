/* Splitting and joining words of one size. Included by planes.inc.h once for every size, after it has defined UW_WORD,
 * an unsigned type of that size, and UW_NAME(NAME), which makes names of functions from it.
 *
 * `planes`, the number of byte planes, is a constant wherever these are called, so that the compiler unrolls the plane
 * loops and vectorises over the words. */

typedef UW_WORD UW_NAME(uw_unaligned) __attribute__((aligned(1), may_alias));

/* The raw bits of a word: the sign above the mantissa bits that are not part of the symbol. */
UW_TARGET UW_INLINE UW_WORD UW_NAME(raw_bits)(UW_WORD word, uint32_t low_bits, uint32_t sign_at)
{
    const UW_WORD low_mask = (UW_WORD)(((UW_WORD)1 << low_bits) - 1);
    const UW_WORD sign = (UW_WORD)(word >> sign_at & 1);
    return (UW_WORD)((word & low_mask) | (UW_WORD)(sign << low_bits));
}

UW_TARGET UW_INLINE void UW_NAME(split)(const UW_NAME(uw_unaligned) *restrict words, size_t count,
                                        const uw_split_spec *spec, const uint32_t planes, uint8_t *restrict symbols,
                                        uint8_t *restrict plane, size_t stride, uint8_t *restrict top)
{
    const uint32_t low_bits = spec->mantissa_bits - spec->top_bits;
    const uint32_t sign_at = spec->exponent_bits + spec->mantissa_bits;
    const UW_WORD value_mask = (UW_WORD)(((UW_WORD)1 << (spec->exponent_bits + spec->top_bits)) - 1);
    const UW_WORD top_mask = (UW_WORD)(((UW_WORD)1 << spec->top_bits) - 1);
    const UW_WORD base = (UW_WORD)(spec->base << spec->top_bits);
    const UW_WORD limit = (UW_WORD)(spec->window << spec->top_bits);
    for (size_t i = 0; i < count; i++) {
        const UW_WORD value = (UW_WORD)((UW_WORD)(words[i] >> low_bits) & value_mask);
        const UW_WORD symbol = (UW_WORD)(value - base);
        symbols[i] = (uint8_t)(symbol < limit ? symbol : (UW_WORD)(limit | (value & top_mask)));
    }
    for (uint32_t k = 0; k < planes; k++) {
        uint8_t *restrict out = plane + k * stride;
        for (size_t i = 0; i < count; i++)
            out[i] = (uint8_t)(UW_NAME(raw_bits)(words[i], low_bits, sign_at) >> (8 * k));
    }
    if ((low_bits + 1) % 8)
        for (size_t i = 0; i < count; i++)
            top[i] = (uint8_t)(UW_NAME(raw_bits)(words[i], low_bits, sign_at) >> (8 * planes));
}

/* `rest` is a constant, too: whether there is a top plane. */
UW_TARGET UW_INLINE void UW_NAME(join)(const uint8_t *restrict symbols, const uint8_t *const plane[8],
                                       const uint8_t *restrict top, size_t count, const uw_split_spec *spec,
                                       const uint32_t planes, const int rest,
                                       UW_NAME(uw_unaligned) *restrict words)
{
    const uint32_t low_bits = spec->mantissa_bits - spec->top_bits;
    const uint32_t sign_at = spec->exponent_bits + spec->mantissa_bits;
    const UW_WORD base = (UW_WORD)(spec->base << spec->top_bits);
    const UW_WORD value_mask = (UW_WORD)(((UW_WORD)1 << (spec->exponent_bits + spec->top_bits)) - 1);
    const UW_WORD low_mask = (UW_WORD)(((UW_WORD)1 << low_bits) - 1);
    const uint8_t *in[8] = {0}; /* a copy, which the words, of a type that may alias all others, do not overwrite */
    for (uint32_t k = 0; k < planes; k++)
        in[k] = plane[k];
    for (size_t i = 0; i < count; i++) {
        UW_WORD raw = rest ? (UW_WORD)((UW_WORD)top[i] << (8 * planes)) : 0;
        for (uint32_t k = 0; k < planes; k++)
            raw |= (UW_WORD)((UW_WORD)in[k][i] << (8 * k));
        const UW_WORD value = (UW_WORD)((UW_WORD)(symbols[i] + base) & value_mask);
        words[i] = (UW_WORD)((UW_WORD)((UW_WORD)(raw >> low_bits & 1) << sign_at) | (UW_WORD)(value << low_bits) |
                             (UW_WORD)(raw & low_mask));
    }
}
