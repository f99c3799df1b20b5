/* Tables that coders look symbols and frequencies up in. */
#include <string.h>

#include "unweight.h"

int uw_decoding_table(const uint16_t *frequencies, uw_decoder_entry *table)
{
    uint32_t start = 0;
    for (uint32_t symbol = 0; symbol < UW_ALPHABET; symbol++) {
        uint32_t frequency = frequencies[symbol];
        if (start + frequency > UW_SLOTS)
            return -1;
        for (uint32_t k = 0; k < frequency; k++)
            table[start + k] = symbol | (frequency - 1) << 8 | k << 20;
        start += frequency;
    }
    return start == UW_SLOTS ? 0 : -1;
}

int uw_encoding_table(const uint16_t *frequencies, uw_encoder_entry *table)
{
    uint32_t start = 0, used = 0;
    for (uint32_t symbol = 0; symbol < UW_ALPHABET; symbol++) {
        uint32_t frequency = frequencies[symbol];
        if (start + frequency > UW_SLOTS)
            return -1;
        float reciprocal = frequency ? 1.0f / (float)frequency : 0.0f;
        memcpy(&table[UW_RECIPROCALS + symbol], &reciprocal, sizeof reciprocal);
        /* The product is exact in double. One too large becomes the next smaller float. */
        if ((double)reciprocal * frequency > 1.0)
            table[UW_RECIPROCALS + symbol]--;
        table[UW_INVERSES + symbol] = frequency > 1 ? (uint32_t)((1ull << 32) / frequency) : UINT32_MAX;
        table[symbol] = frequency | start << 16;
        start += frequency;
        used = frequency ? symbol + 1 : used;
    }
    table[UW_USED] = used;
    return start == UW_SLOTS ? 0 : -1;
}
