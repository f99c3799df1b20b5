/* Rows of activations in shared memory, as gemm.cu multiplies with them. */

#define LANE_WORDS 16u
#define STRIP (WARP * LANE_WORDS)
#define QUADS (STRIP / 4)
#define MAX_SCALED_BASE 128u

__device__ __forceinline__ float widened(u32 word) { return __uint_as_float(word << 16); }

/* A product with 2^(base - 1), as far as binary32 has that. */
struct Scale {
    float factor;
    u32 margin; /* sets bit 15 when added to the exponent field of a BF16 word that becomes infinite */

    __device__ __forceinline__ explicit Scale(u32 base)
    {
        const u32 known = min(base, MAX_SCALED_BASE);
        factor = __uint_as_float((126 + known) << 23);
        margin = (known << 7) * 0x00010001u;
        if (base != known)
            margin = 0x80008000u;
    }

    __device__ __forceinline__ float operator()(float value) const { return __fmul_rn(value, factor); }

    /* Not zero if a product with one of two words is infinite, is NaN, or cannot be formed. */
    __device__ __forceinline__ u32 overflows(u32 pair) const { return ((pair & 0x7f807f80u) + margin) & 0x80008000u; }
};

/* Eight BF16 words; those from number `valid` on are zero. */
__device__ __forceinline__ uint4 eight_words(const u16 *from, u32 valid, bool aligned)
{
    if (aligned)
        return *(const uint4 *)from;
    u32 pairs[4] = {0};
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        if (i < valid)
            pairs[i / 2] |= (u32)from[i] << i % 2 * 16;
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/* A tile of x in shared memory, TOKENS rows of STRIPS strips. Quad q of a lane in a strip lies at
 * 32 q + (lane ^ 2 q), where neither readers nor writers meet in a bank. */
template <u32 TOKENS, u32 STRIPS> struct Tile {
    float4 quads[TOKENS * STRIPS * QUADS];

    static __device__ __forceinline__ u32 place(u32 row, u32 strip, u32 quad, u32 lane)
    {
        return (row * STRIPS + strip) * QUADS + quad * WARP + (lane ^ 2 * quad);
    }

    /* Fills the tile with scaled columns from `first`, and zeros beyond the last; a thread takes eight
     * at a time. True if a value overflows. */
    template <u32 THREADS>
    __device__ __forceinline__ bool fill(const u16 *x, u32 tokens, u32 first, u32 cols, const Scale &scale)
    {
        constexpr u32 EIGHTS = STRIPS * QUADS / 2;
        uint4 words[TOKENS * EIGHTS / THREADS];
        u32 overflows = 0;
        each_eight<THREADS>([&](u32 turn, u32 row, u32 at) {
            const u32 column = first + 8 * at;
            words[turn] = make_uint4(0, 0, 0, 0);
            if (row < tokens && column < cols)
                words[turn] = eight_words(x + (u64)row * cols + column, cols - column, cols % 8 == 0);
        });
        each_eight<THREADS>([&](u32 turn, u32 row, u32 at) {
            const uint4 eight = words[turn];
            overflows |= scale.overflows(eight.x) | scale.overflows(eight.y) | scale.overflows(eight.z) |
                         scale.overflows(eight.w);
            const u32 strip = at / (QUADS / 2), quad = at % 2 * 2, lane = at % (QUADS / 2) / 2;
            quads[place(row, strip, quad, lane)] = scaled(eight.x, eight.y, scale);
            quads[place(row, strip, quad + 1, lane)] = scaled(eight.z, eight.w, scale);
        });
        return overflows != 0;
    }

    /* Calls `take` with the turn, the row and which eight words of it, for all that this thread fills. */
    template <u32 THREADS, class Take> static __device__ __forceinline__ void each_eight(const Take &take)
    {
        constexpr u32 EIGHTS = STRIPS * QUADS / 2;
        static_assert(TOKENS * EIGHTS % THREADS == 0, "every thread takes as many");
#pragma unroll
        for (u32 turn = 0; turn < TOKENS * EIGHTS / THREADS; turn++) {
            const u32 i = turn * THREADS + threadIdx.x;
            take(turn, i / EIGHTS, i % EIGHTS);
        }
    }

    static __device__ __forceinline__ float4 scaled(u32 low, u32 high, const Scale &scale)
    {
        return make_float4(scale(widened(low)), scale(__uint_as_float(low & 0xffff0000u)), scale(widened(high)),
                           scale(__uint_as_float(high & 0xffff0000u)));
    }
};
