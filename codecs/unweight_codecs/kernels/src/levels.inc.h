/* Words to levels and back: the error-bounded mode, with the arithmetic of ../../quantise/levels.py.
 * Included by each instruction set after it has defined UW_TARGET: the compiler makes vectors of it. */
#include <math.h>

enum { BATCH = 1024 };

/* To nearest, ties to even. The values are finite. */
UW_TARGET UW_INLINE uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* To nearest, ties to even; too large ones become infinite. */
UW_TARGET UW_INLINE uint16_t f16_of(float value)
{
    const float grid = 0.5f; /* adding it rounds what will be subnormal to a multiple of 2^-24 */
    uint32_t bits, sign, half;
    memcpy(&bits, &value, sizeof bits);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits >= 0x47800000) { /* 2^16 */
        half = 0x7c00;
    } else if (bits < 0x38800000) { /* 2^-14 */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += grid;
        memcpy(&half, &magnitude, sizeof half);
        half -= 0x3f000000;
    } else {
        half = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
    }
    return (uint16_t)(sign | half);
}

UW_TARGET UW_INLINE float value_of_f16(uint16_t half)
{
    const uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    uint32_t bits = (uint32_t)(half & 0x8000) << 16;
    float value;
    if (exponent == 0) { /* mantissa * 2^-24, whatever the processor does with subnormals */
        value = (float)mantissa * 0x1p-24f;
        return half & 0x8000 ? -value : value;
    }
    bits |= mantissa << 13 | (exponent == 31 ? 255u : exponent + 112) << 23;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Values of `count` words, at most BATCH. */
UW_TARGET UW_INLINE void values_of(const uint8_t *words, uint64_t count, uint32_t dtype, float *values)
{
    uint16_t halves[BATCH];
    uint32_t bits[BATCH];
    if (dtype == UW_F32) {
        memcpy(values, words, count * sizeof *values);
        return;
    }
    memcpy(halves, words, count * sizeof *halves);
    if (dtype == UW_F16) {
        for (uint64_t i = 0; i < count; i++)
            values[i] = value_of_f16(halves[i]);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        bits[i] = (uint32_t)halves[i] << 16;
    memcpy(values, bits, count * sizeof *values);
}

/* Puts `count` words on equally spaced levels. What `kept` marks (NULL: nothing), what is no number and
 * what the levels do not reach gets the symbol `limit`. */
UW_TARGET static void quantise(const uint8_t *words, uint64_t count, uint32_t dtype, const uint8_t *kept, float step,
                           uint32_t low_bits, uint32_t limit, int32_t bias, const float *prediction,
                           uint8_t *symbols, uint8_t *low)
{
    const size_t size = dtype == UW_F32 ? 4 : 2;
    const float nearest = 0x1.8p23f; /* adding it leaves no room for a fraction */
    const float reach = (float)(limit << low_bits), offset = (float)bias;
    const uint32_t mask = (1u << low_bits) - 1;
    for (uint64_t at = 0; at < count; at += BATCH) {
        const uint64_t part = count - at < BATCH ? count - at : BATCH;
        float values[BATCH];
        uint32_t levels[BATCH], inside[BATCH];
        values_of(words + at * size, part, dtype, values);
        if (prediction)
            for (uint64_t i = 0; i < part; i++)
                values[i] -= prediction[at + i];
        for (uint64_t i = 0; i < part; i++) {
            const float scaled = values[i] / step;
            /* Not true of what is no number, nor of what is too large to be rounded this way. */
            const uint32_t near = (scaled > -0x1p22f) & (scaled < 0x1p22f);
            const float level = (near ? scaled : -0x1p22f) + nearest - nearest + offset;
            inside[i] = (level >= 0) & (level < reach);
            levels[i] = (uint32_t)(int32_t)(inside[i] ? level : 0);
        }
        for (uint64_t i = 0; i < part; i++)
            symbols[at + i] = (uint8_t)(inside[i] ? levels[i] >> low_bits : limit);
        if (low_bits)
            for (uint64_t i = 0; i < part; i++)
                low[at + i] = (uint8_t)(levels[i] & mask);
        if (kept)
            for (uint64_t i = 0; i < part; i++)
                if (kept[at + i]) {
                    symbols[at + i] = (uint8_t)limit;
                    if (low_bits)
                        low[at + i] = 0;
                }
    }
}

/* Sums of squares of `count` finite original words and of their errors, and the largest error. Returns
 * -1 when a word that is not finite is decoded to another one. */
UW_TARGET static int squared_error(const uint8_t *original, const uint8_t *decoded, uint64_t count, uint32_t dtype,
                               double sums[3])
{
    const size_t size = dtype == UW_F32 ? 4 : 2;
    double square = 0, error = 0, largest = 0;
    for (uint64_t at = 0; at < count; at += BATCH) {
        const uint64_t part = count - at < BATCH ? count - at : BATCH;
        float before[BATCH], after[BATCH];
        double squares[8] = {0}, errors[8] = {0}, most[8] = {0};
        values_of(original + at * size, part, dtype, before);
        values_of(decoded + at * size, part, dtype, after);
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
        for (uint64_t i = part; i < (part + 7) / 8 * 8; i++)
            before[i] = after[i] = 0;
        for (uint64_t i = 0; i < part; i += 8)
            for (int k = 0; k < 8; k++) {
                const double value = before[i + k], difference = (double)after[i + k] - value;
                const double magnitude = fabs(difference);
                squares[k] += value * value;
                errors[k] += difference * difference;
                most[k] = magnitude > most[k] ? magnitude : most[k];
            }
        for (int k = 0; k < 8; k++) {
            square += squares[k];
            error += errors[k];
            largest = most[k] > largest ? most[k] : largest;
        }
    }
    sums[0] = square;
    sums[1] = error;
    sums[2] = largest;
    return 0;
}

/* Puts the words of escaped symbols where they belong; -1 unless there are exactly `count` of them. */
UW_TARGET static int put_escapes(const uint8_t *symbols, uint64_t words, uint32_t limit, const uint8_t *escapes,
                       uint64_t count, size_t size, uint8_t *out)
{
    uint64_t used = 0;
    for (uint64_t i = 0; i < words; i++) {
        if (symbols[i] < limit)
            continue;
        if (used == count)
            return -1;
        memcpy(out + i * size, escapes + used++ * size, size);
    }
    return used == count ? 0 : -1;
}

/* Decodes `count` words of `dtype` (0 BF16, 1 F16, 2 F32): level times step, plus the prediction unless
 * that is NULL. The level of symbol s is table[s], or without a table s << low_bits | low, less `bias`.
 * The table has 256 entries. Returns -1 unless the symbols ask for exactly `escape_count` escapes. */
UW_TARGET static int dequantise(const uint8_t *symbols, const uint8_t *low, uint64_t count, uint32_t low_bits,
                            uint32_t limit, int32_t bias, const int32_t *table, float step,
                            const float *prediction, const uint8_t *escapes, uint64_t escape_count,
                            uint32_t dtype, uint8_t *out)
{
    const size_t size = dtype == UW_F32 ? 4 : 2;
    for (uint64_t at = 0; at < count; at += BATCH) {
        const uint64_t part = count - at < BATCH ? count - at : BATCH;
        float values[BATCH];
        uint16_t halves[BATCH];
        if (table)
            for (uint64_t i = 0; i < part; i++)
                values[i] = (float)table[symbols[at + i]] * step;
        else if (low_bits)
            for (uint64_t i = 0; i < part; i++)
                values[i] = (float)(((int32_t)symbols[at + i] << low_bits | low[at + i]) - bias) * step;
        else
            for (uint64_t i = 0; i < part; i++)
                values[i] = (float)((int32_t)symbols[at + i] - bias) * step;
        if (prediction)
            for (uint64_t i = 0; i < part; i++)
                values[i] += prediction[at + i];
        if (dtype == UW_F32) {
            memcpy(out + at * size, values, part * size);
            continue;
        }
        if (dtype == UW_BF16)
            for (uint64_t i = 0; i < part; i++)
                halves[i] = bf16_of(values[i]);
        else
            for (uint64_t i = 0; i < part; i++)
                halves[i] = f16_of(values[i]);
        memcpy(out + at * size, halves, part * size);
    }
    return put_escapes(symbols, count, limit, escapes, escape_count, size, out);
}
