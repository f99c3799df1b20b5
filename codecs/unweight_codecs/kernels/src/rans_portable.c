/* The 32-lane rANS coder in plain C: the portable kernel, and the tail of the SIMD decoders. */
#include <string.h>

#include "unweight.h"

/* Decodes one group: symbol i belongs to lane i / 4 and round i % 4. Refills are as good as random, so
 * there is no branch on them to mispredict; with `checked`, words are read only while there are any. */
UW_INLINE const uint8_t *decode_group(const uint8_t *words, const uint8_t *end, const int checked,
                                      const uw_decoder_entry *table, uw_contexts contexts,
                                      uint32_t states[UW_LANES], uint8_t *out)
{
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t lane = 0; lane < UW_LANES; lane++) {
            const uint32_t at = lane * 4 + round, state = states[lane];
            const uw_decoder_entry *row =
                contexts.of ? table + (size_t)contexts.of[at >> contexts.shift] * UW_SLOTS : table;
            const uw_decoder_entry entry = row[state & (UW_SLOTS - 1)];
            uint32_t next = ((entry >> 8 & (UW_SLOTS - 1)) + 1) * (state >> UW_PROB_BITS) + (entry >> 20);
            const uint32_t low = next < UW_STATE_LOW;
            uint16_t word = 0;
            if (!checked || words < end)
                memcpy(&word, words, sizeof word);
            else if (low)
                return NULL;
            states[lane] = low ? next << 16 | word : next;
            words += low ? 2 : 0;
            out[at] = (uint8_t)entry;
        }
    }
    return words;
}

/* Decodes `groups` groups of 128 symbols and checks that every lane ends where encoding began. */
int uw_rans_decode_groups(const uint8_t *words, const uint8_t *end, uint32_t groups,
                          const uw_decoder_entry *table, uw_contexts contexts, uint32_t states[UW_LANES],
                          uint8_t *out)
{
    for (uint32_t group = 0; group < groups && words; group++, out += UW_GROUP) {
        /* A group takes at most 128 words, and one more may be looked at. */
        if (end - words >= 2 * (UW_GROUP + 1))
            words = decode_group(words, end, 0, table, contexts, states, out);
        else
            words = decode_group(words, end, 1, table, contexts, states, out);
        contexts = uw_contexts_at(contexts, UW_GROUP);
    }
    uint32_t wrong = words != end;
    for (uint32_t lane = 0; lane < UW_LANES; lane++)
        wrong |= states[lane] != UW_STATE_LOW;
    return wrong ? -1 : 0;
}

static int rans_decode(const uint8_t *segment, size_t length, uint32_t groups, const uw_decoder_entry *table,
                       uw_contexts contexts, uint8_t *out)
{
    uint32_t states[UW_LANES];
    if (length < UW_STATE_BYTES || length % 2)
        return -1;
    memcpy(states, segment, UW_STATE_BYTES);
    return uw_rans_decode_groups(segment + UW_STATE_BYTES, segment + length, groups, table, contexts,
                                 states, out);
}

static uint8_t *rans_encode(const uint8_t *symbols, uint32_t groups, const uw_encoder_entry *table,
                            uw_contexts contexts, uint8_t *end)
{
    uint32_t states[UW_LANES];
    for (uint32_t lane = 0; lane < UW_LANES; lane++)
        states[lane] = UW_STATE_LOW;
    for (uint32_t group = groups; group-- > 0;) {
        const uint8_t *part = symbols + (size_t)group * UW_GROUP;
        const uw_contexts here = uw_contexts_at(contexts, (size_t)group * UW_GROUP);
        for (uint32_t round = 4; round-- > 0;) {
            for (uint32_t lane = UW_LANES; lane-- > 0;) {
                uint32_t at = lane * 4 + round, state = states[lane];
                const uw_encoder_entry *row =
                    here.of ? table + (size_t)here.of[at >> here.shift] * UW_ENCODER_ENTRIES : table;
                uint32_t entry = row[part[at]], frequency = entry & 0xffff, start = entry >> 16;
                if (frequency == 0)
                    return NULL;
                /* Whether a word leaves is as good as random: it is written in any case. */
                const uint16_t word = (uint16_t)state;
                const uint32_t full = state >> 20 >= frequency;
                memcpy(end - sizeof word, &word, sizeof word);
                end -= full * sizeof word;
                state >>= 16 * full;
                /* The state is below frequency << 20: the product falls short by at most one. */
                uint32_t quotient = (uint32_t)((uint64_t)state * row[UW_INVERSES + part[at]] >> 32);
                uint32_t remainder = state - quotient * frequency;
                const uint32_t more = remainder >= frequency;
                quotient += more;
                remainder -= more * frequency;
                states[lane] = (quotient << UW_PROB_BITS) + remainder + start;
            }
        }
    }
    end -= UW_STATE_BYTES;
    memcpy(end, states, UW_STATE_BYTES);
    return end;
}

#define UW_TARGET
#include "planes.inc.h"
#include "levels.inc.h"

const uw_kernel uw_portable = {
    .name = "portable",
    .rans_decode = rans_decode,
    .rans_encode = rans_encode,
    .split = split,
    .join = join,
    .pack_bits = pack_bits,
    .unpack_bits = unpack_bits,
    .quantise = quantise,
    .find_nearest = find_nearest,
    .dequantise = dequantise,
    .predict = predict,
    .squared_error = squared_error,
};
