/* Weights outside the exponent window: their exponents lie in a stream of their own. */
#include <string.h>

#include "exports.h"

static uint64_t load_word(const uint8_t *at, uint32_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

uint64_t uw_patch_escapes(const uint8_t *symbols, size_t count, const uw_split_spec *spec,
                          const uint8_t *escapes, uint64_t escape_count, uint8_t *words)
{
    const uint32_t limit = spec->window << spec->top_bits, bytes = spec->word_bytes;
    const uint32_t escape_bytes = spec->exponent_bits > 8 ? 2 : 1;
    const uint64_t field = ((1ull << spec->exponent_bits) - 1) << spec->mantissa_bits;
    uint64_t used = 0;
    uint64_t i = uw_next_escape(symbols, 0, count, limit);
    while (i < count) {
        if (used < escape_count) {
            const uint64_t exponent = load_word(escapes + used * escape_bytes, escape_bytes);
            uint64_t word = load_word(words + i * bytes, bytes) & ~field;
            word |= exponent << spec->mantissa_bits & field;
            memcpy(words + i * bytes, &word, bytes);
        }
        used++;
        i = uw_next_escape(symbols, i + 1, count, limit);
    }
    return used;
}

/* Puts escaped exponents into `words`; UW_DAMAGED unless the symbols ask for exactly `escape_count` of them. */
int32_t uw_patch(const uint8_t *symbols, uint64_t count, const uw_split_spec *spec, const uint8_t *escapes,
                 uint64_t escape_count, uint8_t *words)
{
    return uw_patch_escapes(symbols, count, spec, escapes, escape_count, words) == escape_count ? UW_OK : UW_DAMAGED;
}

/* Collects the exponents of escaped words; returns how many there are. `out` holds `count` of them. */
uint64_t uw_collect_escapes(const uint8_t *words, const uint8_t *symbols, uint64_t count, const uw_split_spec *spec,
                            uint8_t *out)
{
    const uint32_t limit = spec->window << spec->top_bits, bytes = spec->word_bytes;
    const uint32_t escape_bytes = spec->exponent_bits > 8 ? 2 : 1;
    uint64_t used = 0;
    uint64_t i = uw_next_escape(symbols, 0, count, limit);
    while (i < count) {
        uint64_t exponent = load_word(words + i * bytes, bytes) >> spec->mantissa_bits;
        exponent &= (1u << spec->exponent_bits) - 1;
        memcpy(out + used * escape_bytes, &exponent, escape_bytes);
        used++;
        i = uw_next_escape(symbols, i + 1, count, limit);
    }
    return used;
}
