/* What a decoder is told about chunks; mirrored by ../chunks.py. All offsets are in bytes. Descriptions
 * come from files: whatever they say, nothing outside the buffers is touched. */

enum Kind { PACKED, CONSTANT, CODED, EXPANDED };

enum Status { DONE, BAD_SEGMENT, BAD_TABLE, BAD_STATES, BAD_ESCAPES, BAD_VALUE };

/* Where the values of one stream of one chunk are, and how: packed at `bits` each, one for all, coded
 * by rANS with a frequency table, or a byte each in the buffer of expanded streams. */
struct Source {
    u64 offset;
    u32 length;
    u8 kind;
    u8 bits;
    u16 unused;
};

/* A chunk of words. The parts are the streams that hold what the symbols leave, lowest bits first. */
#define MOST_PARTS 8
struct Chunk {
    u64 out;   /* where its words go; of a palette, how many escapes lie before */
    u64 first; /* the tensor's word that it begins with */
    u32 count;
    u32 tensor;
    u32 number; /* whose status it is */
    float step; /* of a grid of levels */
    Source symbol, escape, parts[MOST_PARTS];
};

/* What the chunks of a tensor have in common. Offsets are of the buffer of parameters. */
struct Tensor {
    u64 words, columns;
    u64 row_scales, column_scales, context_of_sum; /* a u8 each */
    u64 level_table;                             /* i32 each */
    u64 weights, left, right;                    /* of low-rank factors, as arrays of `LowRank` */
    u64 sm, nibbles, row_ptr, escapes;           /* of a palette, in the buffer of results */
    u32 tile_rows, tile_columns, across, down;
    float scale;
    u32 rank;         /* 0: no factors */
    u32 parts;        /* streams beside symbols and escapes */
    u16 base;         /* first exponent of the window */
    u16 limit;        /* symbols from here up are escapes */
    u8 exponent_bits, mantissa_bits, top_bits;
    u8 classes;       /* frequency tables that are chosen by class; 0: by chunk */
    u8 low_bits;      /* of a level */
    u8 has_table;     /* of levels */
    u8 dtype;         /* of a grid of levels, as in `levels.cu` */
    u8 unused;
    u32 bias;
    u32 escape_number; /* of a palette */
};

/* Chunks, or streams, that a block of threads decodes with the same tables; a warp takes one. */
#define TEAM 4
struct Team {
    u32 first, number;
    u32 table;  /* the first of `tables` */
    u32 tables; /* 0: none is needed */
};

/* The buffers of a launch, with their sizes. Their ends are multiples of 8 bytes. */
struct Buffers {
    const u8 *coded;
    u64 coded_bytes;
    const u8 *parameters;
    u64 parameter_bytes;
    u8 *expanded;
    u64 expanded_bytes;
    u8 *out;
    u64 out_bytes;
    const u16 *frequencies; /* 256 of every table */
    u32 tables;
    u32 *status; /* of every chunk */
    u32 statuses;
};

/* A kernel takes the members of `Buffers` one by one, as launchers pass no structures. */
#define BUFFERS                                                                                      \
    const u8 *coded, u64 coded_bytes, const u8 *parameters, u64 parameter_bytes, u8 *expanded,       \
        u64 expanded_bytes, u8 *out, u64 out_bytes, const u16 *frequencies, u32 tables, u32 *status, \
        u32 statuses
#define THE_BUFFERS                                                                                  \
    {                                                                                                \
        coded, coded_bytes, parameters, parameter_bytes, expanded, expanded_bytes, out, out_bytes,   \
            frequencies, tables, status, statuses                                                    \
    }

__device__ __forceinline__ u64 padded_to_8(u64 bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Whether a segment lies in its buffer, and holds `count` values as far as its length can tell. */
__device__ bool is_sound(const Source &source, u32 count, const Buffers &buffers)
{
    const u64 total = source.kind == EXPANDED ? buffers.expanded_bytes : buffers.coded_bytes;
    if (source.offset % 8 != 0 || !inside(source.offset, padded_to_8(source.length), total))
        return false;
    if (source.kind == PACKED)
        return source.length == ((u64)count * source.bits + 7) / 8;
    if (source.kind == CONSTANT)
        return source.length == 1 && buffers.coded[source.offset] >> source.bits == 0;
    if (source.kind == EXPANDED)
        return source.length >= count;
    return source.kind == CODED && source.length % 2 == 0 && source.length >= 4 * WARP;
}

/* The values of four neighbouring words, a byte each; `at`, a multiple of 4, is below the count. */
__device__ __forceinline__ u32 four_values(const Source &source, u32 at, const Buffers &buffers)
{
    if (source.kind == CONSTANT)
        return buffers.coded[source.offset] * 0x01010101u;
    const u8 *from = (source.kind == EXPANDED ? buffers.expanded : buffers.coded) + source.offset;
    if (source.kind == EXPANDED || source.bits == 8)
        return *(const u32 *)(from + at);
    const u32 *words = (const u32 *)from;
    const u32 bits = source.bits, mask = (1u << bits) - 1, bit = at * bits, index = bit / 32;
    const u32 high = 4 * (index + 1) < padded_to_8(source.length) ? words[index + 1] : 0;
    const u32 four = __funnelshift_r(words[index], high, bit % 32);
    return (four & mask) | (four >> bits & mask) << 8 | (four >> 2 * bits & mask) << 16 |
           (four >> 3 * bits & mask) << 24;
}
