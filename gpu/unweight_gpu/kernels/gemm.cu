/* y = x Wᵀ for a palette W and few rows of x: weights exist in registers only.
 *
 * A thread block takes 16 rows of W in groups. Two warps share a group: each takes every other strip of 512
 * columns, a lane 16 neighbours. The order of a sum therefore depends on nothing but the number
 * of columns, so a row of x gives the same bits beside whatever others, on every device:
 *   1. a lane adds up its columns in ascending order by fused multiply-adds, then its share of escapes;
 *   2. lanes add up in a butterfly, farthest first;
 *   3. the two warps' sums are added.
 *
 * Weights are built relative to the base, 2^(base - 1) too small. Either x is multiplied by that when it
 * is brought to shared memory, or, for a tile of x that this takes to infinity, the weights are, which
 * costs an instruction each. Both are exact, so products are what they would be without. Tiles with
 * infinities or NaNs, and bases whose factor binary32 does not have, are taken the careful way. */

#define SLICES 2u

struct Palette {
    const u8 *sm, *nibbles;
    const u32 *row_ptr, *escapes;
    u32 number, rows, cols, stride, base;

    /* One weight; an escape is +0. */
    __device__ __forceinline__ float weight(u32 row, u32 column) const
    {
        const u64 at = (u64)row * stride + column;
        const u32 nibble = nibbles[at / 8 * 4 + column % 2 * 2 + column % 8 / 4] >> column / 2 % 2 * 4 & 15;
        return widened((sm[at] & 0x80u) << 8 | (nibble ? nibble + base - 1 : 0) << 7 | (sm[at] & 0x7fu));
    }

    /* Whether a weight is among the escapes of its row. */
    __device__ __forceinline__ bool lists(u32 row, u32 column) const
    {
        const u32 end = min(row_ptr[row + 1], number);
        bool found = false;
        for (u32 i = row_ptr[row]; i < end; i++)
            found = found || (escapes[i] & 0xffff) == column;
        return found;
    }
};

struct Product {
    const u16 *x; /* [tokens, cols] */
    void *y;      /* [tokens, rows], BF16 or F32 */
    u32 tokens, y_bytes;
};

__device__ __forceinline__ bool is_finite(float value)
{
    return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

/* The nearest BF16 word, ties to even. */
__device__ __forceinline__ u16 narrowed(float value)
{
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* What a lane has of the planes in one strip, for the rows of its warp. */
template <u32 ROWS> struct Planes {
    uint4 sm[ROWS];
    uint2 nibbles[ROWS];

    __device__ __forceinline__ void load(const Palette &matrix, u32 first_row, u32 strip, u32 lane)
    {
        const u32 column = strip * STRIP + lane * LANE_WORDS;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            if (column < matrix.stride) {
                const u64 row = min(first_row + r, matrix.rows - 1), at = row * matrix.stride + column;
                sm[r] = __ldcs((const uint4 *)(matrix.sm + at));
                nibbles[r] = __ldcs((const uint2 *)(matrix.nibbles + at / 2));
            } else {
                sm[r] = make_uint4(0, 0, 0, 0);
                nibbles[r] = make_uint2(0, 0);
            }
        }
    }

    /* Four weights of row r, relative to the base. */
    template <u32 QUAD> __device__ __forceinline__ void weights(u32 r, float *four) const
    {
        const u32 bytes = QUAD == 0 ? sm[r].x : QUAD == 1 ? sm[r].y : QUAD == 2 ? sm[r].z : sm[r].w;
        const u32 eight = QUAD < 2 ? nibbles[r].x : nibbles[r].y;
        const u32 first = relative_pair<QUAD % 2 * 2>(bytes, eight);
        const u32 second = relative_pair<QUAD % 2 * 2 + 1>(bytes, eight);
        four[0] = __uint_as_float(first << 16);
        four[1] = __uint_as_float(first & 0xffff0000u);
        four[2] = __uint_as_float(second << 16);
        four[3] = __uint_as_float(second & 0xffff0000u);
    }
};

/* One strip of a lane: its 16 columns in ascending order, for every row of x and of the warp. */
template <bool SCALES, u32 TOKENS, u32 ROWS, u32 STRIPS, u32 QUAD>
__device__ __forceinline__ void add_quad(const Planes<ROWS> &planes, const Scale &scale,
                                         const Tile<TOKENS, STRIPS> &tile, u32 strip, u32 lane, float *sums)
{
    float weights[ROWS][4];
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        planes.template weights<QUAD>(r, weights[r]);
        if constexpr (SCALES)
            for (float &weight : weights[r])
                weight = scale(weight);
    }
#pragma unroll
    for (u32 b = 0; b < TOKENS; b++) {
        const float4 x = tile.quads[tile.place(b, strip, QUAD, lane)];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            float *sum = sums + b * ROWS + r;
            *sum = __fmaf_rn(weights[r][0], x.x, *sum);
            *sum = __fmaf_rn(weights[r][1], x.y, *sum);
            *sum = __fmaf_rn(weights[r][2], x.z, *sum);
            *sum = __fmaf_rn(weights[r][3], x.w, *sum);
        }
    }
}

template <bool SCALES, u32 TOKENS, u32 ROWS, u32 STRIPS>
__device__ __forceinline__ void add_strip(const Planes<ROWS> &planes, const Scale &scale,
                                         const Tile<TOKENS, STRIPS> &tile, u32 strip, u32 lane, float *sums)
{
    add_quad<SCALES, TOKENS, ROWS, STRIPS, 0>(planes, scale, tile, strip, lane, sums);
    add_quad<SCALES, TOKENS, ROWS, STRIPS, 1>(planes, scale, tile, strip, lane, sums);
    add_quad<SCALES, TOKENS, ROWS, STRIPS, 2>(planes, scale, tile, strip, lane, sums);
    add_quad<SCALES, TOKENS, ROWS, STRIPS, 3>(planes, scale, tile, strip, lane, sums);
}

/* The same strip, from memory: the true weights times x as it is. An escape, +0 in the planes, is left to
 * the list where it would meet infinity or NaN. Slow, for no network needs it. */
template <u32 TOKENS, u32 ROWS>
__device__ __forceinline__ void add_strip_carefully(const Palette &matrix, const u16 *x, u32 tokens, u32 first_row,
                                                   u32 strip, u32 lane, float *sums)
{
#pragma unroll 1
    for (u32 i = 0; i < LANE_WORDS; i++) {
        const u32 column = strip * STRIP + lane * LANE_WORDS + i;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            const u32 row = min(first_row + r, matrix.rows - 1);
            const float weight = column < matrix.cols ? matrix.weight(row, column) : 0;
            const bool hidden = __float_as_uint(weight) == 0 && column < matrix.cols && matrix.lists(row, column);
            const u16 *from = x + column;
#pragma unroll
            for (u32 b = 0; b < TOKENS; b++, from += matrix.cols) {
                const float value = b < tokens && column < matrix.cols ? widened(*from) : 0;
                if (!hidden || is_finite(value))
                    sums[b * ROWS + r] = __fmaf_rn(weight, value, sums[b * ROWS + r]);
            }
        }
    }
}

/* The escapes that a lane adds: of the 64 lanes of a group, each takes every 64th of a row. Hardly any row
 * has more than 64, so the first of each row is fetched long before it is needed: nothing else hides
 * the time that the end of a short kernel would wait for it. */
template <u32 TOKENS, u32 ROWS> struct Escapes {
    u32 bounds;      /* row_ptr of the row that the lane's number is added to */
    u32 early[ROWS]; /* no escape is 0 */

    __device__ __forceinline__ u32 first_of(u32 r) const { return __shfl_sync(ALL_LANES, bounds, r); }

    __device__ __forceinline__ void load_bounds(const Palette &matrix, u32 first_row, u32 lane)
    {
        bounds = lane <= ROWS ? __ldg(matrix.row_ptr + min(first_row + lane, matrix.rows)) : 0;
    }

    __device__ __forceinline__ void load_early(const Palette &matrix, u32 turn)
    {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            const u32 i = first_of(r) + turn, end = min(first_of(r + 1), matrix.number);
            early[r] = i < end ? __ldg(matrix.escapes + i) : 0;
        }
    }

    /* Adds one escape to the sums of row r; false if its column does not exist. */
    static __device__ __forceinline__ bool add_one(const Palette &matrix, const u16 *x, u32 tokens, u32 escape, u32 r,
                                                   float *sums)
    {
        const u32 column = escape & 0xffff;
        const float weight = __uint_as_float(escape & 0xffff0000u);
        if (column >= matrix.cols)
            return false;
        float values[TOKENS];
#pragma unroll
        for (u32 b = 0; b < TOKENS; b++) /* sums of rows that x does not have are not stored */
            values[b] = widened(__ldg(x + (u64)min(b, tokens - 1) * matrix.cols + column));
#pragma unroll
        for (u32 b = 0; b < TOKENS; b++)
            sums[b * ROWS + r] = __fmaf_rn(weight, values[b], sums[b * ROWS + r]);
        return true;
    }

    /* A row whose list is broken becomes NaN. */
    __device__ __forceinline__ void add(const Palette &matrix, const u16 *x, u32 tokens, u32 turn, float *sums) const
    {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            const u32 first = first_of(r), end = first_of(r + 1);
            bool sound = first <= end && end <= matrix.number;
            if (sound && early[r])
                sound = add_one(matrix, x, tokens, early[r], r, sums);
            for (u32 i = first + turn + SLICES * WARP; sound && i < end; i += SLICES * WARP)
                sound = add_one(matrix, x, tokens, __ldg(matrix.escapes + i), r, sums);
            if (!sound) {
#pragma unroll
                for (u32 b = 0; b < TOKENS; b++)
                    sums[b * ROWS + r] = __uint_as_float(0x7fffffff);
            }
        }
    }
};

/* Sums over the lanes of a warp, for HELD = 2^k values at once: lanes exchange halves of what they hold as
 * long as that is more than one value. Afterwards values[0] of a lane is sum number lane * HELD / 32. */
template <u32 HELD, u32 DISTANCE = WARP / 2> __device__ __forceinline__ void sum_lanes(float *values, u32 lane)
{
    static_assert(HELD <= 2 * DISTANCE && (HELD & (HELD - 1)) == 0, "one sum per lane at most");
    if constexpr (HELD == 1) {
        values[0] = __fadd_rn(values[0], __shfl_xor_sync(ALL_LANES, values[0], DISTANCE));
    } else {
        const bool upper = lane & DISTANCE;
#pragma unroll
        for (u32 i = 0; i < HELD / 2; i++) {
            const float kept = upper ? values[i + HELD / 2] : values[i];
            const float given = upper ? values[i] : values[i + HELD / 2];
            values[i] = __fadd_rn(kept, __shfl_xor_sync(ALL_LANES, given, DISTANCE));
        }
    }
    if constexpr (DISTANCE > 1)
        sum_lanes<(HELD + 1) / 2, DISTANCE / 2>(values, lane);
}

template <u32 TOKENS, u32 ROWS, u32 STRIPS, u32 GROUPS>
__device__ __forceinline__ void multiply(const Palette &matrix, const Product &product, Tile<TOKENS, STRIPS> &tile,
                                         float (&partial)[SLICES][TOKENS][GROUPS * ROWS])
{
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, slice = warp % SLICES, group = warp / SLICES;
    const u32 parts = (product.tokens + TOKENS - 1) / TOKENS, part = blockIdx.x % parts;
    const u32 block_row = blockIdx.x / parts * (GROUPS * ROWS), first_row = block_row + group * ROWS;
    const u32 tokens = min(TOKENS, product.tokens - part * TOKENS), strips = (matrix.stride + STRIP - 1) / STRIP;
    const u16 *x = product.x + (u64)part * TOKENS * matrix.cols;
    /* With few rows of x a strip is short, so the next one is on its way by then; with more of them there
     * are no registers for two strips, and enough to do for other warps meanwhile. */
    constexpr bool AHEAD = TOKENS <= 2;
    const Scale scale(matrix.base);
    Escapes<TOKENS, ROWS> escapes;
    escapes.load_bounds(matrix, first_row, lane);
    float sums[TOKENS * ROWS];
#pragma unroll
    for (u32 i = 0; i < TOKENS * ROWS; i++)
        sums[i] = 0;
    Planes<ROWS> planes;
    planes.load(matrix, first_row, slice, lane);
    for (u32 first = 0; first < strips; first += STRIPS) {
        __syncthreads(); /* the tile before has been read */
        const bool large = __syncthreads_or(
            tile.template fill<SLICES * GROUPS * WARP>(x, tokens, first * STRIP, matrix.cols, scale));
        bool careful = false;
        if (large)
            careful = __syncthreads_or(
                tile.template fill<SLICES * GROUPS * WARP>(x, tokens, first * STRIP, matrix.cols, Scale(1)) ||
                matrix.base > MAX_SCALED_BASE);
        if (first == 0)
            escapes.load_early(matrix, slice * WARP + lane);
#pragma unroll
        for (u32 i = 0; i < STRIPS; i += SLICES) {
            const u32 strip = first + i + slice;
            if (strip >= strips)
                break;
            const Planes<ROWS> current = planes;
            if constexpr (AHEAD)
                planes.load(matrix, first_row, strip + SLICES, lane);
            if (careful)
                add_strip_carefully<TOKENS, ROWS>(matrix, x, tokens, first_row, strip, lane, sums);
            else if (large)
                add_strip<true, TOKENS, ROWS, STRIPS>(current, scale, tile, i + slice, lane, sums);
            else
                add_strip<false, TOKENS, ROWS, STRIPS>(current, scale, tile, i + slice, lane, sums);
            if constexpr (!AHEAD)
                planes.load(matrix, first_row, strip + SLICES, lane);
        }
    }
    escapes.add(matrix, x, tokens, slice * WARP + lane, sums);
    sum_lanes<TOKENS * ROWS>(sums, lane);
    constexpr u32 SHARE = WARP / (TOKENS * ROWS); /* lanes that hold the same sum */
    if (lane % SHARE == 0) {
        const u32 number = lane / SHARE;
        partial[slice][number / ROWS][group * ROWS + number % ROWS] = sums[0];
    }
    __syncthreads();
    const u32 b = threadIdx.x / (GROUPS * ROWS), r = threadIdx.x % (GROUPS * ROWS);
    if (b >= tokens || block_row + r >= matrix.rows)
        return;
    const float y = __fadd_rn(partial[0][b][r], partial[1][b][r]);
    const u64 at = ((u64)part * TOKENS + b) * matrix.rows + block_row + r;
    if (product.y_bytes == 2)
        ((u16 *)product.y)[at] = narrowed(y);
    else
        ((float *)product.y)[at] = y;
}

/* TOKENS rows of x at a time (more in further thread blocks) and a tile of STRIPS strips of them; GROUPS groups of
 * ROWS rows of W. BLOCKS is how many thread blocks a multiprocessor is to hold, which bounds registers. */
#define PALETTE_MATMUL(TOKENS, STRIPS, GROUPS, ROWS, BLOCKS)                                                   \
    extern "C" __global__ void __launch_bounds__(SLICES *GROUPS *WARP, BLOCKS) palette_matmul_##TOKENS(        \
        const u8 *__restrict__ sm, const u8 *__restrict__ nibbles, const u32 *__restrict__ row_ptr,            \
        const u32 *__restrict__ escapes, u32 number, u32 rows, u32 cols, u32 stride, u32 base,                 \
        const u16 *__restrict__ x, void *__restrict__ y, u32 tokens, u32 y_bytes)                              \
    {                                                                                                          \
        __shared__ Tile<TOKENS, STRIPS> tile;                                                                  \
        __shared__ float partial[SLICES][TOKENS][GROUPS * ROWS];                                               \
        const Palette matrix = {sm, nibbles, row_ptr, escapes, number, rows, cols, stride, base};              \
        multiply<TOKENS, ROWS, STRIPS, GROUPS>(matrix, {x, y, tokens, y_bytes}, tile, partial);                \
    }

/* All take 16 rows of W per thread block, so that bringing x to shared memory costs little. */
PALETTE_MATMUL(1, 8, 8, 2, 2)
PALETTE_MATMUL(2, 8, 8, 2, 2)
PALETTE_MATMUL(4, 4, 4, 4, 2)
PALETTE_MATMUL(8, 2, 4, 4, 2)
