/* Weights outside the exponent window: their exponents lie in a stream of their own. */
#include <string.h>

#include "unweight.h"

static uint64_t load_word(const uint8_t *at, uint32_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

enum { UW_RUN = 64 };

/* Escapes are rare, so a run of symbols without one is passed over as a whole. */
static int any_escape(const uint8_t *symbols, uint32_t limit)
{
    uint8_t largest = 0;
    for (int i = 0; i < UW_RUN; i++)
        largest = symbols[i] > largest ? symbols[i] : largest;
    return largest >= limit;
}

uint64_t uw_patch_escapes(const uint8_t *symbols, size_t count, const uw_float *format,
                          const uint8_t *escapes, uint64_t escape_count, uint8_t *words)
{
    const uint32_t limit = format->window << format->top_bits, bytes = format->word_bytes;
    const uint32_t escape_bytes = format->exponent_bits > 8 ? 2 : 1;
    const uint64_t field = ((1ull << format->exponent_bits) - 1) << format->mantissa_bits;
    uint64_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (i % UW_RUN == 0 && i + UW_RUN <= count && !any_escape(symbols + i, limit)) {
            i += UW_RUN - 1;
            continue;
        }
        if (symbols[i] < limit)
            continue;
        if (used < escape_count) {
            uint64_t exponent = load_word(escapes + used * escape_bytes, escape_bytes);
            uint64_t word = load_word(words + i * bytes, bytes) & ~field;
            word |= exponent << format->mantissa_bits & field;
            memcpy(words + i * bytes, &word, bytes);
        }
        used++;
    }
    return used;
}

/* Collects the exponents of escaped words; returns how many there are. `out` holds `count` of them. */
UW_EXPORT uint64_t uw_collect_escapes(const uint8_t *words, const uint8_t *symbols, uint64_t count,
                                      const uw_float *format, uint8_t *out)
{
    const uint32_t limit = format->window << format->top_bits, bytes = format->word_bytes;
    const uint32_t escape_bytes = format->exponent_bits > 8 ? 2 : 1;
    uint64_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (i % UW_RUN == 0 && i + UW_RUN <= count && !any_escape(symbols + i, limit)) {
            i += UW_RUN - 1;
            continue;
        }
        if (symbols[i] < limit)
            continue;
        uint64_t exponent = load_word(words + i * bytes, bytes) >> format->mantissa_bits;
        exponent &= (1u << format->exponent_bits) - 1;
        memcpy(out + used++ * escape_bytes, &exponent, escape_bytes);
    }
    return used;
}
