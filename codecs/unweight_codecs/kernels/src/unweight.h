/* Kernels of Unweight: types, and the table of functions that each instruction set fills. exports.h declares what the
 * library offers.
 *
 * Conventions
 *   All integers are little-endian. No function allocates memory: scratch memory comes from the caller. No function
 *   keeps state between calls: the instruction set is the first argument of every function that depends on it.
 *   Decoders of chunks (chunks.c) take the sizes of the buffers and treat everything else as hostile: what does not lie
 *   inside is UW_DAMAGED, and nothing is read or written outside. The other functions take counts: it is the caller's
 *   duty that the buffers hold as many values. Encoders trust what they are given.
 *   Formats are specified in ../../specs/; ../reference/ has the definition of every function in NumPy. */
#ifndef UNWEIGHT_H
#define UNWEIGHT_H

#include <stddef.h>
#include <stdint.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels assume a little-endian machine; use the NumPy reference elsewhere"
#endif

#define UW_INLINE static inline __attribute__((always_inline))

/* Changes with every change of an exported function, and of what its arguments mean: uw_abi says it to the binding
 * (../native/library.py), which does not use a library of another number. */
#define UW_ABI 1

enum {
    UW_LANES = 32,           /* interleaved rANS states of a chunk */
    UW_GROUP = 128,          /* symbols per four rounds of all lanes: the unit of ordering */
    UW_CONTEXT_RUN_BITS = 5, /* a context may hold for 32 symbols */
    UW_PROB_BITS = 12,       /* frequencies of a table sum to 4096 */
    UW_SLOTS = 1 << UW_PROB_BITS,
    UW_STATE_LOW = 1 << 16, /* states live in [2^16, 2^32) */
    UW_ALPHABET = 256,
    UW_STATE_BYTES = 4 * UW_LANES,
    UW_MAX_RANK = 16,        /* of low-rank factors */
    UW_SPARE = 64,           /* bytes that a vector store may write beyond the end of some outputs */
    UW_COST_BITS = 12,       /* code lengths are counted in 1/4096 bit */
    UW_LLOYD_ITERATIONS = 3, /* more gain nothing measurable */
    UW_TABLE_BYTES = 2 + 2 * UW_ALPHABET, /* a serialised table takes at most */
    UW_SAMPLING_STRIDE = 4,  /* one in so many stretches of words is counted */
    UW_HISTOGRAM_SETS = 4,
    UW_HISTOGRAM_BINS = 1 << 14
};

/* Statuses of exported functions; results are not negative. */
enum {
    UW_OK = 0,
    UW_DAMAGED = -1,      /* no encoder writes this, or it points outside of a buffer */
    UW_DECLINED = -2,     /* the instruction set has no such kernel, or not for this input */
    UW_NO_FREQUENCY = -3, /* a symbol to encode has a frequency of zero */
    UW_NO_ROOM = -4,      /* the scratch memory is smaller than the function asks for */
    UW_UNSUPPORTED = -5,  /* a word size or width that there is none of */
    UW_CUT_SHORT = -6,    /* a frequency table ends early */
    UW_WRONG_SUM = -7     /* the frequencies of a table do not sum to 4096 */
};

/* What a kernel returns that was compiled for an instruction set and wants the general way: not an error. */
enum { UW_UNFUSED = 1 };

/* Words of a tensor may lie anywhere, at any address. */
typedef uint16_t uw_u16 __attribute__((aligned(1), may_alias));

/* One coded stream segment. `count` symbols start at symbol `start` of the span. */
typedef struct {
    uint64_t offset; /* of the segment's first byte in the coded buffer */
    uint64_t start;
    uint32_t length; /* bytes */
    uint32_t count;
    uint32_t table;  /* index of its frequency table; ignored when contexts are used */
    uint32_t reserved;
} uw_segment;

/* Which table codes each symbol: a byte for every 2^shift symbols (shift is 0 or UW_CONTEXT_RUN_BITS). `of` is NULL
 * where one table codes them all. */
typedef struct {
    const uint8_t *of;
    uint32_t shift;
} uw_contexts;

/* The contexts from symbol `at` on, a multiple of UW_GROUP. */
UW_INLINE uw_contexts uw_contexts_at(uw_contexts contexts, size_t at)
{
    if (contexts.of)
        contexts.of += at >> contexts.shift;
    return contexts;
}

/* Dtypes of the error-bounded mode. */
enum { UW_BF16 = 0, UW_F16 = 1, UW_F32 = 2 };

/* How the words of a tensor lie on levels. */
typedef struct {
    uint32_t dtype;
    uint32_t low_bits;    /* of a level, below its symbol: 0 to 8 */
    uint32_t limit;       /* symbols from here up are escapes: words that are stored as they are */
    int32_t bias;         /* what equally spaced levels have added */
    const int32_t *table; /* the level of each of 256 symbols; NULL where they are equally spaced */
} uw_levels;

/* Low-rank factors of the tiles of a matrix, in integers. The tiles at its end may be smaller. */
typedef struct {
    uint64_t columns;       /* of the matrix */
    uint64_t height, width; /* of a tile */
    uint32_t rank;
    float scale;
    const uint16_t *weights; /* [down][across][rank], tiles down and across */
    const int8_t *left;      /* [rows][across][rank] */
    const int8_t *right;     /* [down][rank][columns] */
} uw_factors;

/* Coded parts of one chunk of words on levels. Offsets into the coded buffer. */
typedef struct {
    uw_segment symbol;
    uint64_t low;    /* packed low bits, of as many bytes as the words take */
    uint64_t escape; /* whole words */
    uint32_t escape_count;
    float step;
} uw_level_chunk;

/* How a float word splits into a symbol and raw bits. */
typedef struct {
    uint32_t word_bytes; /* 1, 2, 4 or 8 */
    uint32_t exponent_bits;
    uint32_t mantissa_bits;
    uint32_t top_bits;   /* m: mantissa bits that are part of the symbol */
    uint32_t base;       /* first exponent of the window */
    uint32_t window;     /* exponents in the window; the next symbol group is the escape */
} uw_split_spec;

/* Coded parts of one chunk of 16-bit floats, for the fused decoder. Offsets into the coded buffer. */
typedef struct {
    uw_segment symbol;
    uint64_t plane[2]; /* raw planes: low 8 bits (only when there are two), then the top plane */
    uint64_t escape;
    uint64_t escape_count;
} uw_chunk16;

/* The binding mirrors these. */
_Static_assert(sizeof(uw_segment) == 32, "mirrored by SEGMENT");
_Static_assert(sizeof(uw_level_chunk) == sizeof(uw_segment) + 24, "mirrored by LEVEL_CHUNK");
_Static_assert(sizeof(uw_chunk16) == sizeof(uw_segment) + 32, "mirrored by CHUNK16");
_Static_assert(sizeof(uw_levels) == 16 + sizeof(void *), "mirrored by Levels");
_Static_assert(sizeof(uw_factors) == 32 + 3 * sizeof(void *), "mirrored by Factors");
_Static_assert(sizeof(uw_split_spec) == 24, "mirrored by SplitSpec");

/* What one slot of a decoding table holds: symbol | (frequency - 1) << 8 | (slot - start) << 20. */
typedef uint32_t uw_decoder_entry;

/* Encoding table: for each symbol frequency | start << 16, then the reciprocals of the frequencies as floats and as
 * multiples of 2^-32, neither ever too large, then one word: how many symbols lead up to the last used one. */
typedef uint32_t uw_encoder_entry;
enum {
    UW_RECIPROCALS = UW_ALPHABET,
    UW_INVERSES = 2 * UW_ALPHABET,
    UW_USED = 3 * UW_ALPHABET,
    UW_ENCODER_ENTRIES = 3 * UW_ALPHABET + 16,
    /* Scratch memory of the coders, in 32-bit words per frequency table: the table, and whether it was built. */
    UW_DECODER_ROOM = UW_SLOTS + 1,
    UW_ENCODER_ROOM = UW_ENCODER_ENTRIES + 1
};

/* One instruction set. Everything is checked before: the functions trust their arguments, except for the coded words,
 * planes and escapes themselves. */
typedef struct {
    const char *name;
    int (*rans_decode)(const uint8_t *segment, size_t length, uint32_t groups, const uw_decoder_entry *table,
                       uw_contexts contexts, uint8_t *out);
    /* Two segments at once, to hide latency. NULL where it does not pay. */
    int (*rans_decode_pair)(const uint8_t *const segment[2], const size_t length[2], uint32_t groups,
                            const uw_decoder_entry *const table[2], const uw_contexts contexts[2],
                            uint8_t *const out[2]);
    /* Writes backwards from `end`; returns the first byte written, NULL on a symbol without frequency. */
    uint8_t *(*rans_encode)(const uint8_t *symbols, uint32_t groups, const uw_encoder_entry *table,
                            uw_contexts contexts, uint8_t *end);
    /* Two chunks at once; start[i] is as rans_encode returns it. NULL where it does not pay. */
    void (*rans_encode_pair)(const uint8_t *const symbols[2], uint32_t groups,
                             const uw_encoder_entry *const table[2], const uw_contexts contexts[2],
                             uint8_t *const end[2], uint8_t *start[2]);
    /* Symbols and raw planes of `count` words: see planes.inc.h. */
    void (*split)(const uint8_t *words, size_t count, const uw_split_spec *spec, uint8_t *symbols,
                  uint8_t *planes, size_t plane_stride, uint8_t *top);
    void (*join)(const uint8_t *symbols, const uint8_t *const planes[8], const uint8_t *top,
                 size_t count, const uw_split_spec *spec, uint8_t *words);
    void (*pack_bits)(const uint8_t *values, size_t count, uint32_t width, uint8_t *out);
    void (*unpack_bits)(const uint8_t *packed, size_t packed_length, size_t count, uint32_t width,
                        uint8_t *out);
    /* Words of one chunk of 16-bit floats, or of two equally long ones, straight from their coded parts. UW_UNFUSED
     * asks for the way through the parts; NULL where there is no such kernel. */
    int (*decode16)(const uint8_t *coded, const uw_chunk16 *const *chunk, int chunks,
                    const uw_decoder_entry *const *table, const uw_contexts *contexts,
                    const uw_split_spec *spec, uw_u16 *const *out);
    /* Symbols, low byte plane, packed top plane and escapes of 16-bit floats in one pass; returns the number of
     * escapes. All outputs have UW_SPARE bytes to spare. NULL where there is no such kernel. */
    uint64_t (*split16)(const uint8_t *words, size_t count, const uw_split_spec *spec, uint8_t *symbols,
                        uint8_t *low, uint8_t *top, uint8_t *escapes);
    /* The error-bounded mode: see levels.inc.h. */
    void (*quantise)(const uint8_t *words, uint64_t count, const uint8_t *escaped, const uw_levels *levels,
                     float step, const float *prediction, uint8_t *symbols, uint8_t *low);
    void (*find_nearest)(const uint8_t *words, uint64_t count, const uint8_t *escaped, const uw_levels *levels,
                         float step, const float *prediction, const float *middles, uint8_t *symbols);
    int64_t (*dequantise)(const uint8_t *symbols, const uint8_t *low, uint64_t count,
                          const uw_levels *levels, float step, const float *prediction,
                          const uint8_t *escapes, uint64_t escape_count, uint8_t *words);
    void (*predict)(const int32_t *left, const int8_t *right, uint64_t stride, uint32_t rank, float scale,
                    uint64_t count, float *out);
    int (*squared_error)(const uint8_t *original, const uint8_t *decoded, uint64_t count, uint32_t dtype,
                         double sums[3]);
} uw_kernel;

extern const uw_kernel uw_portable;
#if defined(__x86_64__)
extern const uw_kernel uw_avx2;
extern const uw_kernel uw_avx512;
#endif

/* Shared by all instruction sets: tables.c, rans_portable.c, escapes.c. */
int uw_decoding_table(const uint16_t *frequencies, uw_decoder_entry *table);
int uw_encoding_table(const uint16_t *frequencies, uw_encoder_entry *table);
int uw_rans_decode_groups(const uint8_t *words, const uint8_t *end, uint32_t groups,
                          const uw_decoder_entry *table, uw_contexts contexts, uint32_t states[UW_LANES],
                          uint8_t *out);
/* Puts the exponents of escaped symbols into `words`. Returns how many escapes the symbols hold; more than
 * `escape_count` means damage, and the surplus words are left alone. */
uint64_t uw_patch_escapes(const uint8_t *symbols, size_t count, const uw_split_spec *spec,
                          const uint8_t *escapes, uint64_t escape_count, uint8_t *words);

enum { UW_SCAN_SYMBOLS = 64 };

/* The index of the first escape, a symbol of at least `limit`, among symbols `at` to `count`; `count` where there is
 * none. Escapes are rare, so symbols are passed over UW_SCAN_SYMBOLS at a time. */
UW_INLINE uint64_t uw_next_escape(const uint8_t *symbols, uint64_t at, uint64_t count, uint32_t limit)
{
    while (at < count) {
        const uint64_t boundary = (at | (UW_SCAN_SYMBOLS - 1)) + 1, stop = boundary < count ? boundary : count;
        if (stop - at == UW_SCAN_SYMBOLS) {
            uint8_t largest = 0;
            for (int i = 0; i < UW_SCAN_SYMBOLS; i++)
                largest = symbols[at + (uint64_t)i] > largest ? symbols[at + (uint64_t)i] : largest;
            if (largest < limit) {
                at = stop;
                continue;
            }
        }
        for (; at < stop; at++)
            if (symbols[at] >= limit)
                return at;
    }
    return count;
}

#endif
