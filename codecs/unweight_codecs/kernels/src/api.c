/* The exported functions: they choose the instruction set and loop over the chunks of a span. */
#include <stdlib.h>
#include <string.h>

#include "unweight.h"

static const uw_kernel *active = &uw_portable;

static const uw_kernel *usable(const char *name)
{
    if (strcmp(name, "portable") == 0)
        return &uw_portable;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return &uw_avx2;
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
        __builtin_cpu_supports("bmi2"))
        return &uw_avx512;
#endif
    return NULL;
}

/* Whether this processor runs the kernels called `name`. */
UW_EXPORT int uw_supported(const char *name) { return usable(name) != NULL; }

/* Selects the kernels all later calls use. Returns -1 when the processor lacks them. */
UW_EXPORT int uw_select(const char *name)
{
    const uw_kernel *kernel = usable(name);
    if (!kernel)
        return -1;
    active = kernel;
    return 0;
}

/* Tables are built when a chunk first needs them, in memory of the caller's, who can use it again. */
typedef struct {
    const uint16_t *frequencies;
    uint32_t count, contexts;
    uint8_t *built;
    uint32_t *entries;
    size_t size; /* entries per table */
    int (*build)(const uint16_t *frequencies, uint32_t *entries);
} table_set;

static int table_set_open(table_set *set, const uint16_t *frequencies, uint32_t count, uint32_t contexts,
                          size_t size, int (*build)(const uint16_t *, uint32_t *), uint32_t *entries)
{
    *set = (table_set){frequencies, count, contexts, calloc(count ? count : 1, 1), entries, size, build};
    return set->built ? 0 : -1;
}

static void table_set_close(table_set *set) { free(set->built); }

static const uint32_t *table_set_get(table_set *set, uint32_t index)
{
    uint32_t first = set->contexts ? 0 : index, last = set->contexts ? set->count : index + 1;
    if (last > set->count || first >= last)
        return NULL;
    for (uint32_t i = first; i < last; i++) {
        if (set->built[i])
            continue;
        if (set->build(set->frequencies + (size_t)i * UW_ALPHABET, set->entries + i * set->size))
            return NULL;
        set->built[i] = 1;
    }
    return set->entries + first * set->size;
}

static uint32_t groups_of(const uw_segment *segment)
{
    return (segment->count + UW_GROUP - 1) / UW_GROUP;
}

/* Decodes one segment, or two where there are two of equal length: one[1] may be NULL. Returns how many were
 * decoded, or 0 for damage. */
static uint32_t decode_next(table_set *set, const uint8_t *coded, const uw_segment *const one[2],
                            const uw_contexts contexts[2], uint8_t *const out[2])
{
    const uint32_t groups = groups_of(one[0]);
    const uw_slot *table[2] = {table_set_get(set, one[0]->table), NULL};
    if (!table[0])
        return 0;
    if (active->rans_decode_pair && one[1] && groups_of(one[1]) == groups &&
        (table[1] = table_set_get(set, one[1]->table)) != NULL) {
        const uint8_t *segment[2] = {coded + one[0]->offset, coded + one[1]->offset};
        const size_t length[2] = {one[0]->length, one[1]->length};
        return active->rans_decode_pair(segment, length, groups, table, contexts, out) ? 0 : 2;
    }
    return active->rans_decode(coded + one[0]->offset, one[0]->length, groups, table[0], contexts[0], out[0])
               ? 0
               : 1;
}

/* Decodes rANS segments into `out`, which has room up to the end of each segment's last group.
 * `context_of` (a byte for every 2^context_shift symbols, padded likewise, each below `tables`) selects a
 * table per symbol; NULL takes the segment's own table. `room` is for UW_SLOTS words per table.
 * Returns 0, or 1 + the index of the first damaged segment. */
UW_EXPORT int64_t uw_rans_decode(const uint8_t *coded, const uw_segment *segments, uint32_t count,
                                 const uint16_t *frequencies, uint32_t tables,
                                 const uint8_t *context_of, uint32_t context_shift, uint32_t *room,
                                 uint8_t *out)
{
    const uw_contexts contexts = {context_of, context_shift};
    table_set set;
    int64_t status = 0;
    if (table_set_open(&set, frequencies, tables, context_of != NULL, UW_SLOTS, uw_decoding_table, room))
        status = -1;
    for (uint32_t i = 0; i < count && status == 0;) {
        const uw_segment *one = &segments[i], *two = i + 1 < count ? one + 1 : NULL;
        const uint64_t second = two ? two->start : one->start;
        const uw_contexts part[2] = {uw_contexts_at(contexts, one->start), uw_contexts_at(contexts, second)};
        const uint32_t done = decode_next(&set, coded, (const uw_segment *[]){one, two}, part,
                                          (uint8_t *[]){out + one->start, out + second});
        status = done ? 0 : 1 + (int64_t)i;
        i += done;
    }
    table_set_close(&set);
    return status;
}

/* Moves a coded segment down to `used` and pads it; returns where the next one goes. */
static int64_t place(uw_segment *segment, const uint8_t *start, const uint8_t *end, uint8_t *out, int64_t used)
{
    segment->offset = (uint64_t)used;
    segment->length = (uint32_t)(end - start);
    memmove(out + used, start, segment->length);
    size_t padded = (segment->length + 7u) & ~(size_t)7;
    memset(out + used + segment->length, 0, padded - segment->length);
    return used + (int64_t)padded;
}

/* Encodes the symbols of each segment (padded to whole groups with symbols that have a frequency)
 * one after the other into `out`, each at a multiple of eight bytes, and sets its offset and length.
 * `out` has room for UW_STATE_BYTES + 8 bytes and two per padded symbol, per segment; `room` is for
 * UW_STEPS words per table.
 * Returns the bytes used, or -1 when a symbol has no frequency or memory is short. */
UW_EXPORT int64_t uw_rans_encode(const uint8_t *symbols, uw_segment *segments, uint32_t count,
                                 const uint16_t *frequencies, uint32_t tables,
                                 const uint8_t *context_of, uint32_t context_shift, uint32_t *room,
                                 uint8_t *out)
{
    const uw_contexts contexts = {context_of, context_shift};
    table_set set;
    int64_t used = 0;
    if (table_set_open(&set, frequencies, tables, context_of != NULL, UW_STEPS, uw_encoding_table, room))
        used = -1;
    for (uint32_t i = 0; i < count && used >= 0;) {
        const uint32_t groups = groups_of(&segments[i]);
        const int two = active->rans_encode_pair && i + 1 < count && groups_of(&segments[i + 1]) == groups;
        const size_t most = UW_STATE_BYTES + 2 * (size_t)groups * UW_GROUP;
        const uw_step *table[2] = {NULL, NULL};
        const uint8_t *values[2];
        uw_contexts part[2];
        uint8_t *start[2] = {NULL, NULL}, *end[2];
        for (int k = 0; k <= two; k++) {
            table[k] = table_set_get(&set, segments[i + (uint32_t)k].table);
            values[k] = symbols + segments[i + (uint32_t)k].start;
            part[k] = uw_contexts_at(contexts, segments[i + (uint32_t)k].start);
            end[k] = out + used + (size_t)(k + 1) * most;
        }
        if (two && table[0] && table[1])
            active->rans_encode_pair(values, groups, table, part, end, start);
        else if (!two && table[0])
            start[0] = active->rans_encode(values[0], groups, table[0], part[0], end[0]);
        for (int k = 0; k <= two && used >= 0; k++, i++)
            used = start[k] ? place(&segments[i], start[k], end[k], out, used) : -1;
    }
    table_set_close(&set);
    return used;
}

/* Splits `count` words into symbols, byte planes (`stride` apart) and the packed top plane's values. */
UW_EXPORT void uw_split(const uint8_t *words, uint64_t count, const uw_float *format, uint8_t *symbols,
                        uint8_t *planes, uint64_t stride, uint8_t *top)
{
    active->split(words, count, format, symbols, planes, stride, top);
}

/* The inverse of uw_split, except for escaped words: see uw_patch. `planes` are the byte planes. */
UW_EXPORT void uw_join(const uint8_t *symbols, const uint8_t *const planes[8], const uint8_t *top,
                       uint64_t count, const uw_float *format, uint8_t *words)
{
    active->join(symbols, planes, top, count, format, words);
}

/* Puts escaped exponents into `words`; -1 unless the symbols ask for exactly `escape_count` of them. */
UW_EXPORT int uw_patch(const uint8_t *symbols, uint64_t count, const uw_float *format,
                       const uint8_t *escapes, uint64_t escape_count, uint8_t *words)
{
    uint64_t used = uw_patch_escapes(symbols, count, format, escapes, escape_count, words);
    return used == escape_count ? 0 : -1;
}

/* Packs `count` values of `width` bits (1 to 8), value i at bit i * width, into ceil(count * width / 8) bytes. */
UW_EXPORT void uw_pack_bits(const uint8_t *values, uint64_t count, uint32_t width, uint8_t *out)
{
    active->pack_bits(values, count, width, out);
}

/* The inverse of uw_pack_bits. */
UW_EXPORT void uw_unpack_bits(const uint8_t *packed, uint64_t packed_length, uint64_t count, uint32_t width,
                              uint8_t *out)
{
    active->unpack_bits(packed, packed_length, count, width, out);
}

/* Splits `count` 16-bit floats, chunk by chunk, and sets escape_counts for each. `symbols`, `low`,
 * `top` and `escapes` have 64 bytes to spare. Returns the number of escapes, or UW_DECLINED. */
UW_EXPORT int64_t uw_split16(const uint16_t *words, uint64_t count, uint64_t chunk, const uw_float *format,
                             uint8_t *symbols, uint8_t *low, uint8_t *top, uint8_t *escapes,
                             uint64_t *escape_counts)
{
    const uint32_t raw_bits = format->mantissa_bits - format->top_bits + 1;
    uint64_t escaped = 0;
    if (!active->split16)
        return UW_DECLINED;
    for (uint64_t at = 0; at < count; at += chunk) {
        const uint64_t part = count - at < chunk ? count - at : chunk;
        *escape_counts = active->split16(words + at, part, format, symbols + at, low + at,
                                         top + at / 8 * (raw_bits % 8), escapes + escaped);
        escaped += *escape_counts++;
    }
    return (int64_t)escaped;
}

/* Words straight from the coded parts of chunks of 16-bit floats. Neighbours of equal size are decoded
 * as a pair, any other chunk alone. Returns 0, 1 + the index of a damaged chunk, or
 * UW_DECLINED when the parts have to be decoded one by one. `room` is as for uw_rans_decode. */
UW_EXPORT int64_t uw_decode16(const uint8_t *coded, const uw_chunk16 *chunks, uint32_t count,
                              const uint16_t *frequencies, uint32_t tables, const uint8_t *context_of,
                              uint32_t *room, const uw_float *format, uint16_t *words)
{
    const uw_contexts contexts = {context_of, 0};
    table_set set;
    int64_t status = 0;
    if (!active->decode16)
        return UW_DECLINED;
    if (table_set_open(&set, frequencies, tables, context_of != NULL, UW_SLOTS, uw_decoding_table, room))
        status = UW_DECLINED;
    for (uint32_t i = 0; i < count && status == 0;) {
        const int two = i + 1 < count && chunks[i].symbol.count == chunks[i + 1].symbol.count;
        const uw_chunk16 *pair[2] = {&chunks[i], &chunks[i + two]};
        const uint64_t start[2] = {pair[0]->symbol.start, pair[1]->symbol.start};
        const uw_slot *table[2] = {table_set_get(&set, pair[0]->symbol.table),
                                   table_set_get(&set, pair[1]->symbol.table)};
        const uw_contexts part[2] = {uw_contexts_at(contexts, start[0]), uw_contexts_at(contexts, start[1])};
        uint16_t *const out[2] = {words + start[0], words + start[1]};
        int result = -1;
        if (table[0] && table[1])
            result = active->decode16(coded, pair, 1 + two, table, part, format, out);
        if (result)
            status = result == UW_UNFUSED ? UW_DECLINED : 1 + (int64_t)i;
        i += 1 + (uint32_t)two;
    }
    table_set_close(&set);
    return status;
}

/* Puts words on equally spaced levels: see levels.inc.h. */
UW_EXPORT void uw_quantise(const uint8_t *words, uint64_t count, const uint8_t *kept, const uw_levels *on,
                           float step, const float *prediction, uint8_t *symbols, uint8_t *low)
{
    active->quantise(words, count, kept, on, step, prediction, symbols, low);
}

/* Puts words on the levels of a table: see levels.inc.h. */
UW_EXPORT void uw_find_nearest(const uint8_t *words, uint64_t count, const uint8_t *kept, const uw_levels *on,
                               float step, const float *prediction, const float *middles, uint8_t *symbols)
{
    active->find_nearest(words, count, kept, on, step, prediction, middles, symbols);
}

/* Turns levels into words: see levels.inc.h. Returns -1 unless the symbols ask for exactly `kept_count`. */
UW_EXPORT int uw_dequantise(const uint8_t *symbols, const uint8_t *low, uint64_t count, const uw_levels *levels,
                            float step, const float *prediction, const uint8_t *kept, uint64_t kept_count,
                            uint8_t *words)
{
    const int64_t used =
        active->dequantise(symbols, low, count, levels, step, prediction, kept, kept_count, words);
    return used == (int64_t)kept_count ? 0 : -1;
}

/* Words of one chunk from its symbols and coded parts; -1 unless they ask for all of its kept words. */
static int words_of_chunk(const uint8_t *coded, const uw_level_chunk *chunk, const uw_levels *levels,
                          const uint8_t *symbols, const float *prediction, uint8_t *words)
{
    enum { PART = 1 << 12 };
    const size_t size = levels->dtype == UW_F32 ? 4 : 2;
    const uint32_t count = chunk->symbol.count, width = levels->low_bits;
    const uint64_t packed = ((uint64_t)count * width + 7) / 8;
    uint8_t low[PART];
    uint64_t used = 0;
    for (uint32_t at = 0; at < count; at += PART) {
        const uint32_t part = count - at < PART ? count - at : PART;
        const uint64_t skipped = (uint64_t)at / 8 * width;
        if (width)
            active->unpack_bits(coded + chunk->low + skipped, packed - skipped, part, width, low);
        const int64_t here = active->dequantise(symbols + at, low, part, levels, chunk->step,
                                                prediction ? prediction + at : NULL,
                                                coded + chunk->kept + used * size,
                                                chunk->kept_count - used, words + at * size);
        if (here < 0)
            return -1;
        used += (uint64_t)here;
    }
    return used == chunk->kept_count ? 0 : -1;
}

/* Words straight from the coded parts of chunks on levels, two at a time. `symbols` has room for two chunks
 * of `most` symbols, a multiple of UW_GROUP; `room` is as for uw_rans_decode, `prediction` NULL or one for
 * every word. Returns 0, or 1 + the index of the first damaged chunk. */
UW_EXPORT int64_t uw_decode_levels(const uint8_t *coded, const uw_level_chunk *chunks, uint32_t count,
                                   const uint16_t *frequencies, uint32_t tables, uint32_t *room,
                                   const uw_levels *levels, const float *prediction, uint64_t most,
                                   uint8_t *symbols, uint8_t *words)
{
    const size_t size = levels->dtype == UW_F32 ? 4 : 2;
    const uw_contexts none[2] = {{NULL, 0}, {NULL, 0}};
    uint8_t *const out[2] = {symbols, symbols + most};
    table_set set;
    int64_t status = 0;
    if (table_set_open(&set, frequencies, tables, 0, UW_SLOTS, uw_decoding_table, room))
        status = -1;
    for (uint32_t i = 0; i < count && status == 0;) {
        const uw_segment *two = i + 1 < count ? &chunks[i + 1].symbol : NULL;
        const uint32_t done =
            decode_next(&set, coded, (const uw_segment *[]){&chunks[i].symbol, two}, none, out);
        status = done ? 0 : 1 + (int64_t)i;
        for (uint32_t k = 0; k < done && status == 0; k++, i++) {
            const uint64_t first = chunks[i].symbol.start;
            if (words_of_chunk(coded, &chunks[i], levels, out[k], prediction ? prediction + first : NULL,
                               words + first * size))
                status = 1 + (int64_t)i;
        }
    }
    table_set_close(&set);
    return status;
}

/* What low-rank factors predict for `count` words from word `first` of a matrix on. The rank is at most
 * UW_MAX_RANK. */
UW_EXPORT void uw_predict(const uw_factors *factors, uint64_t first, uint64_t count, float *out)
{
    const uint64_t columns = factors->columns, across = (columns + factors->width - 1) / factors->width;
    const uint32_t rank = factors->rank;
    int32_t left[UW_MAX_RANK];
    for (uint64_t at = first, end = first + count, next; at < end; out += next - at, at = next) {
        const uint64_t row = at / columns, column = at % columns;
        const uint64_t down = row / factors->height, tile = column / factors->width;
        const uint64_t stop = (tile + 1) * factors->width;
        const uint16_t *weights = factors->weights + (down * across + tile) * rank;
        next = row * columns + (stop < columns ? stop : columns);
        next = next < end ? next : end;
        for (uint32_t k = 0; k < rank; k++)
            left[k] = factors->left[(row * across + tile) * rank + k] * weights[k];
        active->predict(left, factors->right + down * rank * columns + column, columns, rank,
                        factors->scale, next - at, out);
    }
}

/* Measures what decoding has changed: see levels.inc.h. */
UW_EXPORT int uw_squared_error(const uint8_t *original, const uint8_t *decoded, uint64_t count, uint32_t dtype,
                               double sums[3])
{
    return active->squared_error(original, decoded, count, dtype, sums);
}
