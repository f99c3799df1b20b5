/* Words <-> symbols and raw planes, and dense bit packing: one source for every instruction set.
 *
 * A file includes this after defining UW_TARGET, the attribute that lets the compiler vectorise
 * the loops for its instruction set.
 *
 * With v = the exponent and the top m mantissa bits of a word, and r = 1 + mantissa - m raw bits
 * (sign above the remaining mantissa):
 *     symbol = v - (base << m)            inside the window
 *              (window << m) | (v & mask) outside: an escape, whose exponent is kept elsewhere
 *     planes = r / 8 byte planes from the lowest bits up, then `top` with the r % 8 highest bits.
 */
#include <string.h>

#include "unweight.h"

#define UW_PASTE(NAME, TYPE) NAME##_##TYPE
#define UW_EXPANDED(NAME, TYPE) UW_PASTE(NAME, TYPE)
#define UW_NAME(NAME) UW_EXPANDED(NAME, UW_WORD)

#define UW_WORD uint8_t
#include "words.inc.h"
#undef UW_WORD
#define UW_WORD uint16_t
#include "words.inc.h"
#undef UW_WORD
#define UW_WORD uint32_t
#include "words.inc.h"
#undef UW_WORD
#define UW_WORD uint64_t
#include "words.inc.h"
#undef UW_WORD

/* The byte planes a word of each size can have, given m <= 3: one call per combination. */
#define UW_FORMATS(CASE)                                  \
    CASE(1, 0, uint8_t)                                   \
    CASE(2, 0, uint16_t) CASE(2, 1, uint16_t)             \
    CASE(4, 2, uint32_t) CASE(4, 3, uint32_t)             \
    CASE(8, 6, uint64_t)

enum { UW_WORDS_AT_ONCE = 4096 }; /* they stay in the first-level cache, as every plane is a pass of its own */

UW_TARGET static void split(const uint8_t *words, size_t count, const uw_split_spec *spec, uint8_t *symbols,
                            uint8_t *planes, size_t stride, uint8_t *top)
{
    const uint32_t bytes = (spec->mantissa_bits - spec->top_bits + 1) / 8;
    for (size_t at = 0; at < count; at += UW_WORDS_AT_ONCE) {
        const size_t part = count - at < UW_WORDS_AT_ONCE ? count - at : UW_WORDS_AT_ONCE;
        const uint8_t *in = words + at * spec->word_bytes;
#define UW_CASE(SIZE, BYTES, TYPE)                  \
    if (spec->word_bytes == SIZE && bytes == BYTES) \
        split_##TYPE((const uw_unaligned_##TYPE *)in, part, spec, BYTES, symbols + at, planes + at, stride, top + at);
        UW_FORMATS(UW_CASE)
#undef UW_CASE
    }
}

UW_TARGET static void join(const uint8_t *symbols, const uint8_t *const planes[8], const uint8_t *top,
                           size_t count, const uw_split_spec *spec, uint8_t *words)
{
    const uint32_t raw_bits = spec->mantissa_bits - spec->top_bits + 1;
    const uint32_t bytes = raw_bits / 8, rest = raw_bits % 8;
#define UW_CASE(SIZE, BYTES, TYPE)                                              \
    if (spec->word_bytes == SIZE && bytes == BYTES) {                           \
        uw_unaligned_##TYPE *const to = (uw_unaligned_##TYPE *)words;           \
        if (rest)                                                               \
            join_##TYPE(symbols, planes, top, count, spec, BYTES, 1, to);       \
        else                                                                    \
            join_##TYPE(symbols, planes, top, count, spec, BYTES, 0, to);       \
    }
    UW_FORMATS(UW_CASE)
#undef UW_CASE
}

/* Gathers the low `width` bits of eight bytes into the low 8 * width bits. */
UW_TARGET UW_INLINE uint64_t squeeze8(uint64_t bytes, uint32_t width)
{
    const uint64_t one = (1ull << width) - 1, two = (1ull << 2 * width) - 1, four = (1ull << 4 * width) - 1;
    const uint32_t gap = 8 - width;
    uint64_t x = bytes;
    x = (x & one * 0x0001000100010001u) | (x >> gap & (one << width) * 0x0001000100010001u);
    x = (x & two * 0x0000000100000001u) | (x >> 2 * gap & (two << 2 * width) * 0x0000000100000001u);
    return (x & four) | (x >> 4 * gap & four << 4 * width);
}

/* The inverse of squeeze8. */
UW_TARGET UW_INLINE uint64_t spread8(uint64_t bits, uint32_t width)
{
    const uint64_t one = (1ull << width) - 1, two = (1ull << 2 * width) - 1, four = (1ull << 4 * width) - 1;
    const uint32_t gap = 8 - width;
    uint64_t x = bits;
    x = (x & four) | (x & four << 4 * width) << 4 * gap;
    x = (x & two * 0x0000000100000001u) | (x & (two << 2 * width) * 0x0000000100000001u) << 2 * gap;
    return (x & one * 0x0001000100010001u) | (x & (one << width) * 0x0001000100010001u) << gap;
}

/* Value i takes bits [i * width, (i + 1) * width) of the little-endian bit string. */
UW_TARGET UW_INLINE void pack_bits_of(const uint8_t *values, size_t count, uint32_t width, uint8_t *out)
{
    size_t full = count / 8;
    for (size_t i = 0; i < full; i++) {
        uint64_t eight;
        memcpy(&eight, values + 8 * i, 8);
        eight = squeeze8(eight, width);
        memcpy(out + width * i, &eight, width);
    }
    uint64_t eight = 0;
    memcpy(&eight, values + 8 * full, count % 8);
    eight = squeeze8(eight, width);
    memcpy(out + width * full, &eight, (count % 8 * width + 7) / 8);
}

UW_TARGET UW_INLINE void unpack_bits_of(const uint8_t *packed, size_t count, uint32_t width, uint8_t *out)
{
    size_t full = count / 8;
    uint64_t eight = 0;
    for (size_t i = 0; i < full; i++) {
        memcpy(&eight, packed + width * i, width);
        uint64_t spread = spread8(eight, width);
        memcpy(out + 8 * i, &spread, 8);
    }
    eight = 0;
    memcpy(&eight, packed + width * full, (count % 8 * width + 7) / 8);
    eight = spread8(eight, width);
    memcpy(out + 8 * full, &eight, count % 8);
}

/* A constant width lets the compiler turn the memcpy calls and masks into single instructions. */
#define UW_WIDTHS(CALL) \
    switch (width) {    \
    case 1: CALL(1); break; case 2: CALL(2); break; case 3: CALL(3); break; case 4: CALL(4); break; \
    case 5: CALL(5); break; case 6: CALL(6); break; case 7: CALL(7); break; default: CALL(8); \
    }

UW_TARGET static void pack_bits(const uint8_t *values, size_t count, uint32_t width, uint8_t *out)
{
#define UW_CALL(WIDTH) pack_bits_of(values, count, WIDTH, out)
    UW_WIDTHS(UW_CALL)
#undef UW_CALL
}

UW_TARGET static void unpack_bits(const uint8_t *packed, size_t packed_length, size_t count,
                                  uint32_t width, uint8_t *out)
{
    (void)packed_length;
#define UW_CALL(WIDTH) unpack_bits_of(packed, count, WIDTH, out)
    UW_WIDTHS(UW_CALL)
#undef UW_CALL
}
