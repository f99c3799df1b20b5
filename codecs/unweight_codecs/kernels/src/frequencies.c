/* Fitting frequency tables: the integer arithmetic of ../../entropy/frequencies.py, step for step. */
#include <stdlib.h>
#include <string.h>

#include "unweight.h"

enum { UW_COST_BITS = 12, UW_ROUNDS = 3, UW_TWO_BYTES = 0x80 };

static int64_t total_of(const int64_t *counts)
{
    int64_t total = 0;
    for (int i = 0; i < UW_ALPHABET; i++)
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
    for (int i = 0; i < UW_ALPHABET; i++) {
        if (counts[i] == 0)
            continue;
        const int64_t scaled = counts[i] * UW_SLOTS;
        fractions[used++] = (fraction){scaled % total, i};
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
        int largest = 0;
        for (int i = 1; i < UW_ALPHABET; i++)
            if (frequencies[i] > frequencies[largest])
                largest = i;
        frequencies[largest]--;
    }
}

static int64_t cost(const int64_t *counts, const uint16_t *frequencies, const int64_t *lengths)
{
    int64_t units = 0;
    for (int i = 0; i < UW_ALPHABET; i++)
        units += counts[i] * lengths[frequencies[i]];
    return (units + (1 << UW_COST_BITS) - 1) >> UW_COST_BITS;
}

/* Bytes that a table takes in the file: see specs/tables.md. */
static int64_t serialised_size(const uint16_t *frequencies)
{
    int64_t used = 0, wide = 0;
    for (int i = 0; i < UW_ALPHABET; i++) {
        used = frequencies[i] ? i + 1 : used;
        wide += frequencies[i] >= UW_TWO_BYTES;
    }
    return 1 + used + wide;
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
                for (int i = 0; i < UW_ALPHABET; i++)
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
            for (int i = 0; i < UW_ALPHABET; i++)
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
UW_EXPORT void uw_normalise(const int64_t *counts, uint32_t rows, uint16_t *tables)
{
    for (uint32_t row = 0; row < rows; row++)
        normalise(counts + (size_t)row * UW_ALPHABET, tables + (size_t)row * UW_ALPHABET);
}

/* Lloyd's algorithm from a given first choice of `number` (at most 256) clusters, which must not have
 * gaps. `lengths` holds the code length of every frequency. Sets tables and choice; `number` becomes
 * the tables in use. Returns the cost in bits, tables included, or -1 when memory is short. */
UW_EXPORT int64_t uw_lloyd(const int64_t *counts, uint32_t rows, const int64_t *lengths, uint32_t *number,
                           uint8_t *choice, uint16_t *tables)
{
    uint8_t *before = malloc(rows ? rows : 1);
    int64_t total = 0;
    if (!before)
        return -1;
    fit(counts, rows, choice, *number, tables);
    for (int round = 0; *number > 1 && round < UW_ROUNDS; round++) {
        memcpy(before, choice, rows);
        *number = assign(counts, rows, tables, *number, lengths, choice);
        if (memcmp(before, choice, rows) == 0)
            break;
        fit(counts, rows, choice, *number, tables);
    }
    free(before);
    for (uint32_t row = 0; row < rows; row++)
        total += cost(counts + (size_t)row * UW_ALPHABET, tables + (size_t)choice[row] * UW_ALPHABET, lengths);
    for (uint32_t k = 0; k < *number; k++)
        total += 8 * serialised_size(tables + (size_t)k * UW_ALPHABET);
    return total;
}
