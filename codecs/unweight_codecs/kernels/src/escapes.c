/* Weights outside the exponent window: their exponents lie in a stream of their own. */
#include <string.h>

#include "unweight.h"

static uint64_t load_word(const uint8_t *at, uint32_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

/* Escapes are rare, so eight symbols at a time are passed over when none of them is one.
 * All symbols from `limit` up are escapes, and 128 - limit cannot carry into the next byte. */
static int any_escape(const uint8_t *symbols, uint32_t limit)
{
    uint64_t eight = load_word(symbols, 8);
    uint64_t low = (eight & 0x7f7f7f7f7f7f7f7fu) + (0x80u - limit) * 0x0101010101010101u;
    return ((low | eight) & 0x8080808080808080u) != 0;
}

uint64_t uw_patch_escapes(const uint8_t *symbols, size_t count, const uw_float *format,
                          const uint8_t *escapes, uint64_t escape_count, uint8_t *words)
{
    const uint32_t limit = format->window << format->top_bits, bytes = format->word_bytes;
    const uint32_t escape_bytes = format->exponent_bits > 8 ? 2 : 1;
    const uint64_t field = ((1ull << format->exponent_bits) - 1) << format->mantissa_bits;
    uint64_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (i % 8 == 0 && i + 8 <= count && !any_escape(symbols + i, limit)) {
            i += 7;
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
        if (i % 8 == 0 && i + 8 <= count && !any_escape(symbols + i, limit)) {
            i += 7;
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
