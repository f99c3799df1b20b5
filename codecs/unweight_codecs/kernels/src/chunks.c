/* Coding the chunks of a span: tables as they are needed, chunks in pairs where that pays, and for decoders the check
 * that every part of a chunk lies inside the buffers. */
#include <string.h>

#include "exports.h"

/* Tables are built when a chunk first needs them, in memory of the caller's. */
typedef struct {
    const uint16_t *frequencies;
    uint32_t count, contexts; /* `contexts`: whether symbols choose among all of them */
    uint32_t *built;
    uint32_t *entries;
    size_t size; /* entries per table */
    int (*build)(const uint16_t *frequencies, uint32_t *entries);
} table_set;

static int32_t table_set_open(table_set *set, const uint16_t *frequencies, uint32_t count, int contexts, size_t size,
                              int (*build)(const uint16_t *, uint32_t *), uint32_t *room, uint64_t room_words)
{
    if (room_words / (size + 1) < count)
        return UW_NO_ROOM;
    *set = (table_set){frequencies, count, contexts != 0, room, room + count, size, build};
    memset(set->built, 0, count * sizeof *set->built);
    return UW_OK;
}

/* The table of a segment, or all of them; NULL where there is no such table, or one is damaged. */
static const uint32_t *table_set_get(table_set *set, uint32_t index)
{
    const uint32_t first = set->contexts ? 0 : index, number = set->contexts ? set->count : 1;
    if (first >= set->count)
        return NULL;
    for (uint32_t i = first; i < first + number; i++) {
        if (set->built[i])
            continue;
        if (set->build(set->frequencies + (size_t)i * UW_ALPHABET, set->entries + i * set->size))
            return NULL;
        set->built[i] = 1;
    }
    return set->entries + first * set->size;
}

static uint64_t padded(uint32_t count)
{
    return ((uint64_t)count + UW_GROUP - 1) / UW_GROUP * UW_GROUP;
}

static uint32_t groups_of(const uw_segment *segment)
{
    return (uint32_t)(padded(segment->count) / UW_GROUP);
}

/* Whether `length` things from `offset` on are among `size` of them. */
static int is_inside(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

/* A span of chunks being decoded. */
typedef struct {
    const uw_kernel *kernel;
    const uint8_t *coded;
    uint64_t coded_length;
    uw_contexts contexts;
    uint64_t context_count;
    table_set tables;
} decoder;

/* Whether every symbol of a segment has a context, and every context a table. */
static int contexts_are_sound(const decoder *d, const uw_segment *segment)
{
    const uint64_t first = segment->start >> d->contexts.shift;
    const uint64_t number = padded(segment->count) >> d->contexts.shift;
    uint8_t largest = 0;
    if (!d->contexts.of)
        return 1;
    if (!is_inside(first, number, d->context_count))
        return 0;
    for (uint64_t i = 0; i < number; i++)
        largest = d->contexts.of[first + i] > largest ? d->contexts.of[first + i] : largest;
    return largest < d->tables.count;
}

/* Whether the symbols of a chunk can be decoded without a read outside of a buffer. */
static int segment_is_sound(const decoder *d, const uw_segment *segment)
{
    return is_inside(segment->offset, segment->length, d->coded_length) && contexts_are_sound(d, segment);
}

/* Decodes one segment, or two where there are two of equal length: one[1] may be NULL. All are sound. Returns how many
 * were decoded, or 0 for damage. */
static uint32_t decode_next(decoder *d, const uw_segment *const one[2], uint8_t *const out[2])
{
    const uint32_t groups = groups_of(one[0]);
    const uw_decoder_entry *table[2] = {table_set_get(&d->tables, one[0]->table), NULL};
    const uw_contexts contexts[2] = {uw_contexts_at(d->contexts, one[0]->start),
                                     uw_contexts_at(d->contexts, one[1] ? one[1]->start : 0)};
    if (!table[0])
        return 0;
    if (d->kernel->rans_decode_pair && one[1] && groups_of(one[1]) == groups)
        table[1] = table_set_get(&d->tables, one[1]->table);
    if (table[1]) {
        const uint8_t *segment[2] = {d->coded + one[0]->offset, d->coded + one[1]->offset};
        const size_t length[2] = {one[0]->length, one[1]->length};
        return d->kernel->rans_decode_pair(segment, length, groups, table, contexts, out) ? 0 : 2;
    }
    return d->kernel->rans_decode(d->coded + one[0]->offset, one[0]->length, groups, table[0], contexts[0], out[0])
               ? 0
               : 1;
}

/* Decodes rANS segments into `out`, symbol i at byte i, up to the end of each segment's last group.
 *
 * `context_of` (`context_count` bytes, one for every 2^context_shift symbols, padded likewise) selects a table per
 * symbol; NULL takes the segment's own table. `room` has UW_DECODER_ROOM words per table. Returns UW_OK, UW_DAMAGED or
 * UW_NO_ROOM. */
int32_t uw_rans_decode(const uw_kernel *kernel, const uint8_t *coded, uint64_t coded_length,
                       const uw_segment *segments, uint32_t count, const uint16_t *frequencies, uint32_t tables,
                       const uint8_t *context_of, uint64_t context_count, uint32_t context_shift, uint32_t *room,
                       uint64_t room_words, uint8_t *out, uint64_t out_length)
{
    decoder d = {kernel, coded, coded_length, {context_of, context_shift}, context_count, {0}};
    const int32_t status = table_set_open(&d.tables, frequencies, tables, context_of != NULL, UW_SLOTS,
                                          uw_decoding_table, room, room_words);
    if (status)
        return status;
    if (context_shift != 0 && context_shift != UW_CONTEXT_RUN_BITS)
        return UW_DAMAGED;
    for (uint32_t i = 0; i < count; i++)
        if (!segment_is_sound(&d, &segments[i]) || !is_inside(segments[i].start, padded(segments[i].count), out_length))
            return UW_DAMAGED;
    uint32_t i = 0;
    while (i < count) {
        const uw_segment *const one[2] = {&segments[i], i + 1 < count ? &segments[i + 1] : NULL};
        uint8_t *const to[2] = {out + one[0]->start, one[1] ? out + one[1]->start : NULL};
        const uint32_t done = decode_next(&d, one, to);
        if (!done)
            return UW_DAMAGED;
        i += done;
    }
    return UW_OK;
}

/* Moves a coded segment down to `used` and pads it; returns where the next one goes. */
static uint64_t place(uw_segment *segment, const uint8_t *start, const uint8_t *end, uint8_t *out, uint64_t used)
{
    segment->offset = used;
    segment->length = (uint32_t)(end - start);
    memmove(out + used, start, segment->length);
    const size_t size = ((size_t)segment->length + 7) & ~(size_t)7;
    memset(out + used + segment->length, 0, size - segment->length);
    return used + size;
}

/* Encodes the symbols of each segment (padded to whole groups with symbols that have a frequency) one after the other
 * into `out`, each at a multiple of eight bytes, and sets its offset and length.
 *
 * `out` has room for UW_STATE_BYTES + 8 bytes and two per padded symbol, per segment; `room` has UW_ENCODER_ROOM words
 * per table. Contexts are as for uw_rans_decode, and below `tables`. Returns the bytes used, UW_NO_FREQUENCY or
 * UW_NO_ROOM. */
int64_t uw_rans_encode(const uw_kernel *kernel, const uint8_t *symbols, uw_segment *segments, uint32_t count,
                       const uint16_t *frequencies, uint32_t tables, const uint8_t *context_of, uint32_t context_shift,
                       uint32_t *room, uint64_t room_words, uint8_t *out)
{
    const uw_contexts contexts = {context_of, context_shift};
    table_set set;
    const int32_t status = table_set_open(&set, frequencies, tables, context_of != NULL, UW_ENCODER_ENTRIES,
                                          uw_encoding_table, room, room_words);
    if (status)
        return status;
    uint64_t used = 0;
    uint32_t i = 0;
    while (i < count) {
        const uint32_t groups = groups_of(&segments[i]);
        const uint32_t number =
            kernel->rans_encode_pair && i + 1 < count && groups_of(&segments[i + 1]) == groups ? 2 : 1;
        const size_t most = UW_STATE_BYTES + 2 * (size_t)groups * UW_GROUP;
        const uw_encoder_entry *table[2] = {NULL, NULL};
        const uint8_t *values[2];
        uw_contexts part[2];
        uint8_t *start[2] = {NULL, NULL}, *end[2];
        for (uint32_t k = 0; k < number; k++) {
            table[k] = table_set_get(&set, segments[i + k].table);
            values[k] = symbols + segments[i + k].start;
            part[k] = uw_contexts_at(contexts, segments[i + k].start);
            end[k] = out + used + (k + 1) * most;
        }
        if (number == 2 && table[0] && table[1])
            kernel->rans_encode_pair(values, groups, table, part, end, start);
        else if (number == 1 && table[0])
            start[0] = kernel->rans_encode(values[0], groups, table[0], part[0], end[0]);
        for (uint32_t k = 0; k < number; k++) {
            if (!start[k])
                return UW_NO_FREQUENCY;
            used = place(&segments[i + k], start[k], end[k], out, used);
        }
        i += number;
    }
    return (int64_t)used;
}

/* Whether planes, escapes and words of a chunk of 16-bit floats lie inside their buffers. */
static int chunk16_is_sound(const decoder *d, const uw_chunk16 *chunk, const uw_split_spec *spec, uint64_t word_count)
{
    const uint64_t count = chunk->symbol.count;
    const uint32_t raw_bits = spec->mantissa_bits - spec->top_bits + 1;
    const uint32_t low_plane = raw_bits > 8, width = raw_bits % 8 ? raw_bits % 8 : 8;
    return segment_is_sound(d, &chunk->symbol) && is_inside(chunk->symbol.start, count, word_count) &&
           is_inside(chunk->plane[0], low_plane ? count : 0, d->coded_length) &&
           is_inside(chunk->plane[low_plane], (count * width + 7) / 8, d->coded_length) &&
           is_inside(chunk->escape, chunk->escape_count, d->coded_length);
}

/* Words straight from the coded parts of chunks of 16-bit floats whose exponents fit a byte. Neighbours of equal size
 * are decoded as a pair, any other chunk alone. Tables, contexts (one per symbol) and `room` are as for uw_rans_decode.
 * Returns UW_OK, UW_DAMAGED, UW_NO_ROOM, or UW_DECLINED when the parts have to be decoded one by one. */
int32_t uw_decode16(const uw_kernel *kernel, const uint8_t *coded, uint64_t coded_length, const uw_chunk16 *chunks,
                    uint32_t count, const uint16_t *frequencies, uint32_t tables, const uint8_t *context_of,
                    uint64_t context_count, uint32_t *room, uint64_t room_words, const uw_split_spec *spec,
                    uint8_t *words, uint64_t word_count)
{
    if (!kernel->decode16 || spec->word_bytes != 2 || spec->exponent_bits > 8)
        return UW_DECLINED;
    decoder d = {kernel, coded, coded_length, {context_of, 0}, context_count, {0}};
    const int32_t status = table_set_open(&d.tables, frequencies, tables, context_of != NULL, UW_SLOTS,
                                          uw_decoding_table, room, room_words);
    if (status)
        return status;
    for (uint32_t i = 0; i < count; i++)
        if (!chunk16_is_sound(&d, &chunks[i], spec, word_count))
            return UW_DAMAGED;
    uint32_t i = 0;
    while (i < count) {
        const uint32_t number = i + 1 < count && chunks[i].symbol.count == chunks[i + 1].symbol.count ? 2 : 1;
        const uw_chunk16 *const pair[2] = {&chunks[i], &chunks[i + number - 1]};
        const uint64_t start[2] = {pair[0]->symbol.start, pair[1]->symbol.start};
        const uw_decoder_entry *const table[2] = {table_set_get(&d.tables, pair[0]->symbol.table),
                                                  table_set_get(&d.tables, pair[1]->symbol.table)};
        const uw_contexts part[2] = {uw_contexts_at(d.contexts, start[0]), uw_contexts_at(d.contexts, start[1])};
        uw_u16 *const out[2] = {(uw_u16 *)words + start[0], (uw_u16 *)words + start[1]};
        if (!table[0] || !table[1])
            return UW_DAMAGED;
        const int result = kernel->decode16(coded, pair, (int)number, table, part, spec, out);
        if (result)
            return result == UW_UNFUSED ? UW_DECLINED : UW_DAMAGED;
        i += number;
    }
    return UW_OK;
}

static uint32_t word_bytes_of(const uw_levels *levels) { return levels->dtype == UW_F32 ? 4 : 2; }

/* Whether low bits, escapes and words of a chunk on levels lie inside their buffers, and its symbols in `room`. */
static int level_chunk_is_sound(const decoder *d, const uw_level_chunk *chunk, const uw_levels *levels, uint64_t room,
                                uint64_t word_count)
{
    const uint64_t count = chunk->symbol.count, escapes = (uint64_t)chunk->escape_count * word_bytes_of(levels);
    const uint64_t low = (count * levels->low_bits + 7) / 8;
    return segment_is_sound(d, &chunk->symbol) && padded(chunk->symbol.count) <= room &&
           is_inside(chunk->symbol.start, count, word_count) && is_inside(chunk->low, low, d->coded_length) &&
           is_inside(chunk->escape, escapes, d->coded_length);
}

/* Words of one chunk from its symbols and coded parts; -1 unless they ask for all of its escapes. */
static int words_of_chunk(const decoder *d, const uw_level_chunk *chunk, const uw_levels *levels,
                          const uint8_t *symbols, const float *prediction, uint8_t *words)
{
    enum { PART = 1 << 12 }; /* words whose low bits stay in the first-level cache */
    const size_t size = word_bytes_of(levels);
    const uint32_t count = chunk->symbol.count, width = levels->low_bits;
    const uint64_t packed = ((uint64_t)count * width + 7) / 8;
    uint8_t low[PART];
    uint64_t used = 0;
    for (uint32_t at = 0; at < count; at += PART) {
        const uint32_t part = count - at < PART ? count - at : PART;
        const uint64_t skipped = (uint64_t)at / 8 * width;
        if (width)
            d->kernel->unpack_bits(d->coded + chunk->low + skipped, packed - skipped, part, width, low);
        const int64_t here = d->kernel->dequantise(symbols + at, low, part, levels, chunk->step,
                                                   prediction ? prediction + at : NULL,
                                                   d->coded + chunk->escape + used * size,
                                                   chunk->escape_count - used, words + at * size);
        if (here < 0)
            return -1;
        used += (uint64_t)here;
    }
    return used == chunk->escape_count ? 0 : -1;
}

/* Words straight from the coded parts of chunks on levels, two at a time. `symbols` has `symbol_room` bytes: two times
 * a multiple of UW_GROUP, for the symbols of the longest chunk. `prediction` is NULL or one for every word; tables and
 * `room` are as for uw_rans_decode. Returns UW_OK, UW_DAMAGED, UW_NO_ROOM or UW_UNSUPPORTED. */
int32_t uw_decode_levels(const uw_kernel *kernel, const uint8_t *coded, uint64_t coded_length,
                         const uw_level_chunk *chunks, uint32_t count, const uint16_t *frequencies, uint32_t tables,
                         uint32_t *room, uint64_t room_words, const uw_levels *levels, const float *prediction,
                         uint8_t *symbols, uint64_t symbol_room, uint8_t *words, uint64_t word_count)
{
    const size_t size = word_bytes_of(levels);
    const uint64_t most = symbol_room / 2;
    uint8_t *const out[2] = {symbols, symbols + most};
    decoder d = {kernel, coded, coded_length, {NULL, 0}, 0, {0}};
    const int32_t status =
        table_set_open(&d.tables, frequencies, tables, 0, UW_SLOTS, uw_decoding_table, room, room_words);
    if (status)
        return status;
    if (levels->low_bits > 8 || levels->dtype > UW_F32)
        return UW_UNSUPPORTED;
    for (uint32_t i = 0; i < count; i++)
        if (!level_chunk_is_sound(&d, &chunks[i], levels, most, word_count))
            return UW_DAMAGED;
    uint32_t i = 0;
    while (i < count) {
        const uw_segment *const one[2] = {&chunks[i].symbol, i + 1 < count ? &chunks[i + 1].symbol : NULL};
        const uint32_t done = decode_next(&d, one, out);
        if (!done)
            return UW_DAMAGED;
        for (uint32_t k = 0; k < done; k++) {
            const uint64_t first = chunks[i + k].symbol.start;
            if (words_of_chunk(&d, &chunks[i + k], levels, out[k], prediction ? prediction + first : NULL,
                               words + first * size))
                return UW_DAMAGED;
        }
        i += done;
    }
    return UW_OK;
}
