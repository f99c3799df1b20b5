/* Fitting frequency tables: the integer arithmetic of ../reference/tables.py, operation by operation. */
#include <stdlib.h>
#include <string.h>

#include "exports.h"

enum { UW_TWO_BYTES = 0x80 }; /* frequencies from here up take two bytes */

static int64_t total_of(const int64_t *counts)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < UW_ALPHABET; i++)
        total += counts[i];
    return total;
}

typedef struct {
    int64_t remainder;
    int symbol;
} fraction;

/* Largest remainder first; equal ones in the order of their symbols. */
static int by_remainder(const void *a, const void *b)
{
    const fraction *one = a, *two = b;
    if (one->remainder != two->remainder)
        return one->remainder < two->remainder ? 1 : -1;
    return one->symbol - two->symbol;
}

static void normalise(const int64_t *counts, uint16_t *frequencies)
{
    fraction fractions[UW_ALPHABET];
    const int64_t total = total_of(counts);
    int64_t missing = UW_SLOTS;
    size_t used = 0;
    memset(frequencies, 0, UW_ALPHABET * sizeof *frequencies);
    if (total == 0) {
        frequencies[0] = UW_SLOTS;
        return;
    }
    for (uint32_t i = 0; i < UW_ALPHABET; i++) {
        if (counts[i] == 0)
            continue;
        const int64_t scaled = counts[i] * UW_SLOTS;
        fractions[used++] = (fraction){scaled % total, (int)i};
        frequencies[i] = (uint16_t)(scaled / total);
        if (frequencies[i] == 0)
            frequencies[i] = 1;
        missing -= frequencies[i];
    }
    if (missing > 0) {
        /* Remainders add up to at least `missing`, so symbols without a count get nothing. */
        qsort(fractions, used, sizeof *fractions, by_remainder);
        for (int i = 0; i < missing; i++)
            frequencies[fractions[i].symbol]++;
    }
    for (; missing < 0; missing++) {
        uint32_t largest = 0;
        for (uint32_t i = 1; i < UW_ALPHABET; i++)
            if (frequencies[i] > frequencies[largest])
                largest = i;
        frequencies[largest]--;
    }
}

static int64_t cost(const int64_t *counts, const uint16_t *frequencies, const int64_t *lengths)
{
    int64_t units = 0;
    for (uint32_t i = 0; i < UW_ALPHABET; i++)
        units += counts[i] * lengths[frequencies[i]];
    return (units + (1 << UW_COST_BITS) - 1) >> UW_COST_BITS;
}

/* Writes a table as specs/tables.md says; returns its bytes. */
static int64_t serialise(const uint16_t *frequencies, uint8_t *out)
{
    int first = 0, last = UW_ALPHABET - 1;
    int64_t used = 0;
    while (first < last && !frequencies[first])
        first++;
    while (last > first && !frequencies[last])
        last--;
    out[used++] = (uint8_t)first;
    out[used++] = (uint8_t)last;
    for (int i = first; i <= last; i++) {
        const uint16_t frequency = frequencies[i];
        out[used++] = (uint8_t)(frequency < UW_TWO_BYTES ? frequency : frequency | UW_TWO_BYTES);
        if (frequency >= UW_TWO_BYTES)
            out[used++] = (uint8_t)(frequency >> 7);
    }
    return used;
}

/* Tables of `number` clusters of histograms; clusters without a histogram must not occur. */
static void fit(const int64_t *counts, uint32_t rows, const uint8_t *choice, uint32_t number,
                uint16_t *tables)
{
    int64_t pooled[UW_ALPHABET];
    for (uint32_t k = 0; k < number; k++) {
        memset(pooled, 0, sizeof pooled);
        for (uint32_t row = 0; row < rows; row++)
            if (choice[row] == k)
                for (uint32_t i = 0; i < UW_ALPHABET; i++)
                    pooled[i] += counts[(size_t)row * UW_ALPHABET + i];
        normalise(pooled, tables + (size_t)k * UW_ALPHABET);
    }
}

/* Gives every histogram its cheapest table and closes gaps in the numbering. Returns the number of
 * tables still in use. */
static uint32_t assign(const int64_t *counts, uint32_t rows, const uint16_t *tables, uint32_t number,
                       const int64_t *lengths, uint8_t *choice)
{
    uint8_t renumbered[UW_ALPHABET] = {0};
    uint32_t used = 0;
    for (uint32_t row = 0; row < rows; row++) {
        int64_t best = INT64_MAX;
        for (uint32_t k = 0; k < number; k++) {
            int64_t units = 0;
            for (uint32_t i = 0; i < UW_ALPHABET; i++)
                units += counts[(size_t)row * UW_ALPHABET + i] * lengths[tables[(size_t)k * UW_ALPHABET + i]];
            if (units < best) {
                best = units;
                choice[row] = (uint8_t)k;
            }
        }
        renumbered[choice[row]] = 1;
    }
    for (uint32_t k = 0; k < number; k++)
        if (renumbered[k])
            renumbered[k] = (uint8_t)used++;
    for (uint32_t row = 0; row < rows; row++)
        choice[row] = renumbered[choice[row]];
    return used;
}

/* Normalises each of `rows` histograms. */
void uw_normalise(const int64_t *counts, uint32_t rows, uint16_t *tables)
{
    for (uint32_t row = 0; row < rows; row++)
        normalise(counts + (size_t)row * UW_ALPHABET, tables + (size_t)row * UW_ALPHABET);
}

/* Lloyd's algorithm from a given first choice of `number` (at most 256) clusters, which must not have gaps. `lengths`
 * holds the code length of every frequency; `before` is scratch memory for `rows` bytes. Sets tables and choice;
 * `number` becomes the tables in use. Returns the cost in bits, tables included. */
int64_t uw_lloyd(const int64_t *counts, uint32_t rows, const int64_t *lengths, uint32_t *number, uint8_t *choice,
                 uint8_t *before, uint16_t *tables)
{
    uint8_t serialised[UW_TABLE_BYTES];
    int64_t total = 0;
    fit(counts, rows, choice, *number, tables);
    for (int iteration = 0; *number > 1 && iteration < UW_LLOYD_ITERATIONS; iteration++) {
        memcpy(before, choice, rows);
        *number = assign(counts, rows, tables, *number, lengths, choice);
        if (memcmp(before, choice, rows) == 0)
            break;
        fit(counts, rows, choice, *number, tables);
    }
    for (uint32_t row = 0; row < rows; row++)
        total += cost(counts + (size_t)row * UW_ALPHABET, tables + (size_t)choice[row] * UW_ALPHABET, lengths);
    for (uint32_t k = 0; k < *number; k++)
        total += 8 * serialise(tables + (size_t)k * UW_ALPHABET, serialised);
    return total;
}

/* Writes `count` tables one after the other; `out` has room for UW_TABLE_BYTES each. Returns the bytes. */
int64_t uw_serialise(const uint16_t *tables, uint32_t count, uint8_t *out)
{
    int64_t used = 0;
    for (uint32_t k = 0; k < count; k++)
        used += serialise(tables + (size_t)k * UW_ALPHABET, out + used);
    return used;
}

/* Reads `count` tables from `length` bytes. Returns the bytes they take, UW_CUT_SHORT or UW_WRONG_SUM. */
int64_t uw_parse(const uint8_t *data, uint64_t length, uint32_t count, uint16_t *tables)
{
    uint64_t at = 0;
    memset(tables, 0, (size_t)count * UW_ALPHABET * sizeof *tables);
    for (uint32_t k = 0; k < count; k++) {
        uint16_t *table = tables + (size_t)k * UW_ALPHABET;
        uint32_t sum = 0;
        if (length - at < 2)
            return UW_CUT_SHORT;
        const uint32_t first = data[at], last = data[at + 1];
        at += 2;
        for (uint32_t i = first; i <= last; i++) {
            if (at == length)
                return UW_CUT_SHORT;
            uint32_t frequency = data[at++];
            if (frequency & UW_TWO_BYTES) {
                if (at == length)
                    return UW_CUT_SHORT;
                frequency = (frequency & 0x7f) | (uint32_t)data[at++] << 7;
            }
            table[i] = (uint16_t)frequency;
            sum += frequency;
        }
        if (sum != UW_SLOTS)
            return UW_WRONG_SUM;
    }
    return (int64_t)at;
}
