/* Exported functions that only hand over to an instruction set. */
#include "exports.h"

/* Splits `count` words into symbols, byte planes (`stride` apart) and the values of the top plane. */
void uw_split(const uw_kernel *kernel, const uint8_t *words, uint64_t count, const uw_split_spec *spec,
              uint8_t *symbols, uint8_t *planes, uint64_t stride, uint8_t *top)
{
    kernel->split(words, count, spec, symbols, planes, stride, top);
}

/* Splits `count` 16-bit floats, chunk by chunk, and sets escape_counts for each. `symbols`, `low`, `top` and `escapes`
 * have UW_SPARE bytes to spare. Returns the number of escapes, or UW_DECLINED. */
int64_t uw_split16(const uw_kernel *kernel, const uint8_t *words, uint64_t count, uint64_t chunk,
                   const uw_split_spec *spec, uint8_t *symbols, uint8_t *low, uint8_t *top, uint8_t *escapes,
                   uint64_t *escape_counts)
{
    const uint32_t raw_bits = spec->mantissa_bits - spec->top_bits + 1;
    uint64_t escaped = 0;
    if (!kernel->split16)
        return UW_DECLINED;
    for (uint64_t at = 0, i = 0; at < count; at += chunk, i++) {
        const uint64_t part = count - at < chunk ? count - at : chunk;
        escape_counts[i] = kernel->split16(words + 2 * at, part, spec, symbols + at, low + at,
                                           top + at / 8 * (raw_bits % 8), escapes + escaped);
        escaped += escape_counts[i];
    }
    return (int64_t)escaped;
}

/* The inverse of uw_split, except for escaped words: see uw_patch. `planes` are the byte planes. */
void uw_join(const uw_kernel *kernel, const uint8_t *symbols, const uint8_t *const planes[8], const uint8_t *top,
             uint64_t count, const uw_split_spec *spec, uint8_t *words)
{
    kernel->join(symbols, planes, top, count, spec, words);
}

/* Packs `count` values of `width` bits (1 to 8), value i at bit i * width, into ceil(count * width / 8) bytes; `out`
 * has eight bytes to spare. */
void uw_pack_bits(const uw_kernel *kernel, const uint8_t *values, uint64_t count, uint32_t width, uint8_t *out)
{
    kernel->pack_bits(values, count, width, out);
}

/* The inverse of uw_pack_bits. Returns UW_DAMAGED where there are fewer bytes than the values take. */
int32_t uw_unpack_bits(const uw_kernel *kernel, const uint8_t *packed, uint64_t packed_length, uint64_t count,
                       uint32_t width, uint8_t *out)
{
    if (packed_length < count / 8 * width + (count % 8 * width + 7) / 8)
        return UW_DAMAGED;
    kernel->unpack_bits(packed, packed_length, count, width, out);
    return UW_OK;
}

/* Puts words on equally spaced levels: see levels.inc.h. */
void uw_quantise(const uw_kernel *kernel, const uint8_t *words, uint64_t count, const uint8_t *escaped,
                 const uw_levels *levels, float step, const float *prediction, uint8_t *symbols, uint8_t *low)
{
    kernel->quantise(words, count, escaped, levels, step, prediction, symbols, low);
}

/* Puts words on the levels of a table: see levels.inc.h. */
void uw_find_nearest(const uw_kernel *kernel, const uint8_t *words, uint64_t count, const uint8_t *escaped,
                     const uw_levels *levels, float step, const float *prediction, const float *middles,
                     uint8_t *symbols)
{
    kernel->find_nearest(words, count, escaped, levels, step, prediction, middles, symbols);
}

/* Turns levels into words: see levels.inc.h. UW_DAMAGED unless the symbols ask for exactly `escape_count` escapes. */
int32_t uw_dequantise(const uw_kernel *kernel, const uint8_t *symbols, const uint8_t *low, uint64_t count,
                      const uw_levels *levels, float step, const float *prediction, const uint8_t *escapes,
                      uint64_t escape_count, uint8_t *words)
{
    const int64_t used =
        kernel->dequantise(symbols, low, count, levels, step, prediction, escapes, escape_count, words);
    return used == (int64_t)escape_count ? UW_OK : UW_DAMAGED;
}

/* What low-rank factors predict for `count` words from word `first` of a matrix on. The rank is at most UW_MAX_RANK. */
void uw_predict(const uw_kernel *kernel, const uw_factors *factors, uint64_t first, uint64_t count, float *out)
{
    const uint64_t columns = factors->columns, across = (columns + factors->width - 1) / factors->width;
    const uint64_t end = first + count;
    const uint32_t rank = factors->rank;
    int32_t left[UW_MAX_RANK];
    uint64_t at = first;
    while (at < end) { /* the part of a row that lies in one tile */
        const uint64_t row = at / columns, column = at % columns;
        const uint64_t down = row / factors->height, tile = column / factors->width;
        const uint64_t stop = (tile + 1) * factors->width;
        const uint64_t boundary = row * columns + (stop < columns ? stop : columns);
        const uint64_t next = boundary < end ? boundary : end;
        const uint16_t *weights = factors->weights + (down * across + tile) * rank;
        for (uint32_t k = 0; k < rank; k++)
            left[k] = factors->left[(row * across + tile) * rank + k] * weights[k];
        kernel->predict(left, factors->right + down * rank * columns + column, columns, rank, factors->scale,
                        next - at, out + (at - first));
        at = next;
    }
}

/* Measures what decoding has changed: see levels.inc.h. UW_DAMAGED where a word that is not finite becomes another. */
int32_t uw_squared_error(const uw_kernel *kernel, const uint8_t *original, const uint8_t *decoded, uint64_t count,
                         uint32_t dtype, double sums[3])
{
    return kernel->squared_error(original, decoded, count, dtype, sums) ? UW_DAMAGED : UW_OK;
}
