/* Words to levels and back: the error-bounded mode, with the arithmetic of ../reference/levels.py.
 * Included by each instruction set after it has defined UW_TARGET: the compiler makes vectors of it. */
#include <math.h>
#include <string.h>

#include "unweight.h"

enum { UW_VALUES_AT_ONCE = 1024 }; /* as float32 they stay in the first-level cache, with what else a loop needs */

/* `yes` where `condition` is 1, `no` where it is 0, in a way that never is a branch: loops become vectors. */
UW_TARGET UW_INLINE uint32_t uw_choose(uint32_t condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0u - condition;
    return (yes & mask) | (no & ~mask);
}

UW_TARGET UW_INLINE uint32_t uw_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

UW_TARGET UW_INLINE float uw_value_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even. The values are finite. */
UW_TARGET UW_INLINE uint16_t uw_bf16_of(float value)
{
    const uint32_t bits = uw_bits_of(value);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* To nearest, ties to even; too large ones become infinite. */
UW_TARGET UW_INLINE uint16_t uw_f16_of(float value)
{
    const uint32_t sign = uw_bits_of(value) >> 16 & 0x8000, bits = uw_bits_of(value) & 0x7fffffff;
    const uint32_t small = uw_bits_of(fabsf(value) + 0.5f); /* rounds to a multiple of 2^-24 */
    uint32_t half = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
    half = uw_choose(bits < 0x38800000, small - 0x3f000000, half); /* 2^-14: below, it is subnormal */
    half = uw_choose(bits < 0x47800000, half, 0x7c00);             /* 2^16 */
    return (uint16_t)(sign | half);
}

UW_TARGET UW_INLINE float uw_value_of_f16(uint16_t half)
{
    const uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    /* Where the exponent is 0, mantissa * 2^-24, whatever the processor does with subnormals. */
    const uint32_t small = uw_bits_of((float)(int32_t)mantissa * 0x1p-24f);
    const uint32_t normal = mantissa << 13 | (exponent + uw_choose(exponent == 31, 224, 112)) << 23;
    return uw_value_of(uw_choose(exponent == 0, small, normal) | (uint32_t)(half & 0x8000) << 16);
}

/* Values of `count` words, at most UW_VALUES_AT_ONCE. */
UW_TARGET UW_INLINE void uw_load_values(const uint8_t *words, uint64_t count, uint32_t dtype, float *values)
{
    uint16_t halves[UW_VALUES_AT_ONCE];
    uint32_t bits[UW_VALUES_AT_ONCE];
    if (dtype == UW_F32) {
        memcpy(values, words, count * sizeof *values);
        return;
    }
    memcpy(halves, words, count * sizeof *halves);
    if (dtype == UW_F16) {
        for (uint64_t i = 0; i < count; i++)
            values[i] = uw_value_of_f16(halves[i]);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        bits[i] = (uint32_t)halves[i] << 16;
    memcpy(values, bits, count * sizeof *values);
}

/* Puts `count` words on equally spaced levels. What `escaped` marks with 1 (NULL: nothing), what is not
 * finite and what the levels do not reach gets the symbol `limit`: it is an escape. */
UW_TARGET static void quantise(const uint8_t *words, uint64_t count, const uint8_t *escaped,
                               const uw_levels *levels, float step, const float *prediction,
                               uint8_t *symbols, uint8_t *low)
{
    const uint32_t dtype = levels->dtype, low_bits = levels->low_bits, limit = levels->limit;
    const size_t size = dtype == UW_F32 ? 4 : 2;
    const float nearest = 0x1.8p23f; /* adding it leaves no room for a fraction */
    const float reach = (float)(limit << low_bits), offset = (float)levels->bias;
    const uint32_t mask = (1u << low_bits) - 1;
    for (uint64_t at = 0; at < count; at += UW_VALUES_AT_ONCE) {
        const uint64_t part = count - at < UW_VALUES_AT_ONCE ? count - at : UW_VALUES_AT_ONCE;
        float values[UW_VALUES_AT_ONCE];
        uint32_t found[UW_VALUES_AT_ONCE], inside[UW_VALUES_AT_ONCE];
        uw_load_values(words + at * size, part, dtype, values);
        if (prediction)
            for (uint64_t i = 0; i < part; i++)
                values[i] -= prediction[at + i];
        for (uint64_t i = 0; i < part; i++) {
            const float scaled = values[i] / step;
            /* Not true of a NaN, nor of what is too large to be rounded this way. */
            const uint32_t near = (scaled > -0x1p22f) & (scaled < 0x1p22f);
            const float bounded = uw_value_of(uw_choose(near, uw_bits_of(scaled), uw_bits_of(-0x1p22f)));
            const float level = bounded + nearest - nearest + offset;
            inside[i] = (level >= 0) & (level < reach);
            found[i] = uw_choose(inside[i], (uint32_t)(int32_t)level, 0);
        }
        for (uint64_t i = 0; i < part; i++)
            symbols[at + i] = (uint8_t)uw_choose(inside[i], found[i] >> low_bits, limit);
        if (low_bits)
            for (uint64_t i = 0; i < part; i++)
                low[at + i] = (uint8_t)(found[i] & mask);
        for (uint64_t i = 0; escaped && i < part; i++)
            symbols[at + i] = (uint8_t)uw_choose(escaped[at + i], limit, symbols[at + i]);
        for (uint64_t i = 0; escaped && low_bits && i < part; i++)
            low[at + i] = (uint8_t)uw_choose(escaped[at + i], 0, low[at + i]);
    }
}

/* Puts `count` words on the nearest levels of a table: the symbol is how many of `middles`, `limit` - 1 of
 * them, a word is above. What `escaped` marks with 1 and what is not finite gets the symbol `limit`. */
UW_TARGET static void find_nearest(const uint8_t *words, uint64_t count, const uint8_t *escaped,
                                   const uw_levels *levels, float step, const float *prediction,
                                   const float *middles, uint8_t *symbols)
{
    const size_t size = levels->dtype == UW_F32 ? 4 : 2;
    for (uint64_t at = 0; at < count; at += UW_VALUES_AT_ONCE) {
        const uint64_t part = count - at < UW_VALUES_AT_ONCE ? count - at : UW_VALUES_AT_ONCE;
        float values[UW_VALUES_AT_ONCE];
        uint32_t finite[UW_VALUES_AT_ONCE], found[UW_VALUES_AT_ONCE] = {0};
        uw_load_values(words + at * size, part, levels->dtype, values);
        for (uint64_t i = 0; i < part; i++)
            finite[i] = fabsf(values[i]) < INFINITY;
        for (uint64_t i = 0; prediction && i < part; i++)
            values[i] -= prediction[at + i];
        for (uint64_t i = 0; i < part; i++)
            values[i] /= step;
        for (uint32_t k = 0; k + 1 < levels->limit; k++)
            for (uint64_t i = 0; i < part; i++)
                found[i] += values[i] > middles[k];
        for (uint64_t i = 0; i < part; i++)
            symbols[at + i] = (uint8_t)uw_choose(finite[i], found[i], levels->limit);
        for (uint64_t i = 0; escaped && i < part; i++)
            symbols[at + i] = (uint8_t)uw_choose(escaped[at + i], levels->limit, symbols[at + i]);
    }
}

/* Sums of squares of `count` finite original words and of their errors, and the largest error. Returns
 * -1 when a word that is not finite is decoded to another one. */
UW_TARGET static int squared_error(const uint8_t *original, const uint8_t *decoded, uint64_t count, uint32_t dtype,
                               double sums[3])
{
    enum { SUMS = 32 }; /* at once: as sums must not be reordered, the compiler cannot split one */
    const size_t size = dtype == UW_F32 ? 4 : 2;
    double squares[SUMS] = {0}, errors[SUMS] = {0}, most[SUMS] = {0};
    double square = 0, error = 0, largest = 0;
    for (uint64_t at = 0; at < count; at += UW_VALUES_AT_ONCE) {
        const uint64_t part = count - at < UW_VALUES_AT_ONCE ? count - at : UW_VALUES_AT_ONCE;
        float before[UW_VALUES_AT_ONCE], after[UW_VALUES_AT_ONCE];
        uw_load_values(original + at * size, part, dtype, before);
        uw_load_values(decoded + at * size, part, dtype, after);
        int finite = 1;
        for (uint64_t i = 0; i < part; i++)
            finite &= fabsf(before[i]) < INFINITY;
        for (uint64_t i = 0; !finite && i < part; i++) {
            if (fabsf(before[i]) < INFINITY)
                continue;
            if (memcmp(original + (at + i) * size, decoded + (at + i) * size, size) != 0)
                return -1;
            before[i] = after[i] = 0;
        }
        for (uint64_t i = part; i % SUMS; i++)
            before[i] = after[i] = 0;
        for (uint64_t i = 0; i < part; i += SUMS)
            for (uint32_t k = 0; k < SUMS; k++) {
                const double value = before[i + k], difference = (double)after[i + k] - value;
                const double magnitude = fabs(difference);
                squares[k] += value * value;
                errors[k] += difference * difference;
                most[k] = magnitude > most[k] ? magnitude : most[k];
            }
    }
    for (uint32_t k = 0; k < SUMS; k++) {
        square += squares[k];
        error += errors[k];
        largest = most[k] > largest ? most[k] : largest;
    }
    sums[0] = square;
    sums[1] = error;
    sums[2] = error == error ? largest : error; /* a comparison does not see a NaN */
    return 0;
}

/* Puts escapes where their symbols are. Returns how many there are, or -1 when `escape_count` is too few. */
UW_TARGET static int64_t put_escapes(const uint8_t *symbols, uint64_t count, uint32_t limit, const uint8_t *escapes,
                                     uint64_t escape_count, size_t size, uint8_t *words)
{
    uint64_t used = 0;
    uint64_t i = uw_next_escape(symbols, 0, count, limit);
    while (i < count) {
        if (used == escape_count)
            return -1;
        memcpy(words + i * size, escapes + used * size, size);
        used++;
        i = uw_next_escape(symbols, i + 1, count, limit);
    }
    return (int64_t)used;
}

/* The float32 products of `count` levels, at most UW_VALUES_AT_ONCE, and the step. `products` are those of a table of
 * levels; NULL where they are equally spaced. */
UW_TARGET UW_INLINE void uw_products_of(const uint8_t *symbols, const uint8_t *low, uint64_t count,
                                     const uw_levels *levels, float step, const float *products,
                                     float *restrict values)
{
    const uint32_t low_bits = levels->low_bits;
    const int32_t bias = levels->bias;
    if (products)
        for (uint64_t i = 0; i < count; i++)
            values[i] = products[symbols[i]];
    else if (low_bits)
        for (uint64_t i = 0; i < count; i++)
            values[i] = (float)(((int32_t)symbols[i] << low_bits | low[i]) - bias) * step;
    else
        for (uint64_t i = 0; i < count; i++)
            values[i] = (float)((int32_t)symbols[i] - bias) * step;
}

/* Rounds `count` values to words. */
UW_TARGET UW_INLINE void uw_round_to_words(const float *values, uint64_t count, uint32_t dtype,
                                        uint8_t *restrict words)
{
    if (dtype == UW_F32)
        memcpy(words, values, count * sizeof *values);
    else if (dtype == UW_BF16)
        for (uint64_t i = 0; i < count; i++) {
            const uint16_t half = uw_bf16_of(values[i]);
            memcpy(words + 2 * i, &half, sizeof half);
        }
    else
        for (uint64_t i = 0; i < count; i++) {
            const uint16_t half = uw_f16_of(values[i]);
            memcpy(words + 2 * i, &half, sizeof half);
        }
}

/* Decodes `count` words: level times step, plus the prediction unless that is NULL, or an escape where the
 * symbol says so. Returns how many escapes there were, or -1 when there are fewer than the symbols ask for. */
UW_TARGET static int64_t dequantise(const uint8_t *symbols, const uint8_t *low, uint64_t count,
                                    const uw_levels *levels, float step, const float *prediction,
                                    const uint8_t *escapes, uint64_t escape_count, uint8_t *words)
{
    const size_t size = levels->dtype == UW_F32 ? 4 : 2;
    float products[UW_ALPHABET];
    uint64_t used = 0;
    for (int s = 0; s < UW_ALPHABET && levels->table; s++)
        products[s] = (float)levels->table[s] * step;
    for (uint64_t at = 0; at < count; at += UW_VALUES_AT_ONCE) {
        const uint64_t part = count - at < UW_VALUES_AT_ONCE ? count - at : UW_VALUES_AT_ONCE;
        float values[UW_VALUES_AT_ONCE];
        uw_products_of(symbols + at, low + at, part, levels, step, levels->table ? products : NULL, values);
        for (uint64_t i = 0; i < part && prediction; i++)
            values[i] += prediction[at + i];
        uw_round_to_words(values, part, levels->dtype, words + at * size);
        const int64_t here = put_escapes(symbols + at, part, levels->limit, escapes + used * size,
                                         escape_count - used, size, words + at * size);
        if (here < 0)
            return -1;
        used += (uint64_t)here;
    }
    return (int64_t)used;
}

/* Predictions of `count` words of a row: scale times the sum over k of left[k] * right[k * stride + i]. */
UW_TARGET static void predict(const int32_t *left, const int8_t *right, uint64_t stride, uint32_t rank,
                              float scale, uint64_t count, float *out)
{
    for (uint64_t at = 0; at < count; at += UW_VALUES_AT_ONCE) {
        const uint64_t part = count - at < UW_VALUES_AT_ONCE ? count - at : UW_VALUES_AT_ONCE;
        int32_t sums[UW_VALUES_AT_ONCE] = {0};
        for (uint32_t k = 0; k < rank; k++) {
            const int8_t *row = right + k * stride + at;
            for (uint64_t i = 0; i < part; i++)
                sums[i] += left[k] * row[i];
        }
        for (uint64_t i = 0; i < part; i++)
            out[at + i] = (float)sums[i] * scale;
    }
}
