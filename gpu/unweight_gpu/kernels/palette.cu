/* BF16 matrices to palettes and back, and the check of a palette (../palette/format.py). */

#define ROW_THREADS 128u

enum { SOUND, BAD_ROW, BAD_COLUMN, BAD_ORDER, BAD_PLACE };

/* The nibble of a BF16 word: 0 for a zero and for an escape. */
__device__ __forceinline__ u32 nibble_of(u32 word, u32 base)
{
    const u32 above = (word >> 7 & 0xff) - base;
    return above < 15 ? above + 1 : 0;
}

__device__ __forceinline__ bool is_escape(u32 word, u32 base)
{
    return nibble_of(word, base) == 0 && (word & 0x7fff) != 0;
}

/* Eight words of a row from `column`; those beyond its end are zero. */
struct EightWords {
    u32 pairs[4];

    __device__ __forceinline__ EightWords(const u16 *row, u32 column, u32 cols)
    {
        if (cols % 8 == 0) {
            const uint4 words = column < cols ? __ldcs((const uint4 *)(row + column)) : make_uint4(0, 0, 0, 0);
            pairs[0] = words.x;
            pairs[1] = words.y;
            pairs[2] = words.z;
            pairs[3] = words.w;
            return;
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 first = column + 2 * i, low = first < cols ? row[first] : 0;
            pairs[i] = low | (first + 1 < cols ? (u32)row[first + 1] << 16 : 0);
        }
    }

    __device__ __forceinline__ u32 word(u32 i) const { return pairs[i / 2] >> i % 2 * 16 & 0xffff; }

    /* Bit i is set if word i is an escape. */
    __device__ __forceinline__ u32 escapes(u32 base) const
    {
        u32 found = 0;
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            found |= (u32)is_escape(word(i), base) << i;
        return found;
    }
};

/* First pass of encoding, a block per row: the planes, and how many escapes the row has. */
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    palette_planes(const u16 *__restrict__ words, u8 *__restrict__ sm, u32 *__restrict__ nibbles,
                   u32 *__restrict__ counts, u32 rows, u32 cols, u32 stride, u32 base)
{
    __shared__ u32 total;
    const u64 row = blockIdx.x;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    u32 count = 0;
    for (u32 column = 8 * threadIdx.x; column < stride; column += 8 * ROW_THREADS) {
        const EightWords eight(words + row * cols, column, cols);
        const u32 escapes = eight.escapes(base);
        u32 bytes[2] = {0}, fields[2] = {0};
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            const u32 word = escapes >> i & 1 ? 0 : eight.word(i);
            bytes[i / 4] |= ((word >> 8 & 0x80) | (word & 0x7f)) << i % 4 * 8;
            fields[i / 4] |= nibble_of(word, base) << i % 4 * 8;
        }
        const u64 at = row * stride + column;
        *(uint2 *)(sm + at) = make_uint2(bytes[0], bytes[1]);
        nibbles[at / 8] = four_nibbles(fields[0]) | four_nibbles(fields[1]) << 8;
        count += __popc(escapes);
    }
    atomicAdd(&total, count);
    __syncthreads();
    if (threadIdx.x == 0)
        counts[row] = total;
}

/* Second pass, a warp per row: the escapes in the order of columns. `row_ptr` are the sums of the counts;
 * a row that does not have as many is not written. */
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    palette_escapes(const u16 *__restrict__ words, const u32 *__restrict__ row_ptr, u32 *__restrict__ escapes,
                    u32 number, u32 *__restrict__ status, u32 rows, u32 cols, u32 base)
{
    const u32 lane = threadIdx.x % WARP;
    const u64 row = blockIdx.x * (ROW_THREADS / WARP) + threadIdx.x / WARP;
    if (row >= rows)
        return;
    u32 next = row_ptr[row];
    const u32 end = row_ptr[row + 1];
    bool sound = next <= end && end <= number;
    for (u32 first = 0; sound && first < cols; first += 8 * WARP) {
        const u32 column = first + 8 * lane;
        const EightWords eight(words + row * cols, column, cols);
        u32 found = eight.escapes(base), total;
        u32 at = next + sum_below(__popc(found), lane, &total);
        sound = total <= end - next;
        if (!sound)
            break;
        next += total;
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            if (found >> i & 1)
                escapes[at++] = (column + i) | eight.word(i) << 16;
    }
    if (lane == 0)
        status[row] = sound && next == end ? SOUND : BAD_ROW;
}

/* BF16 words again, a block per row. Escapes come last, in their places: the barrier is what makes them
 * win. Of a list that is broken, those are taken that lie inside the row. */
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    palette_expand(const u8 *__restrict__ sm, const u32 *__restrict__ nibbles, const u32 *__restrict__ row_ptr,
                   const u32 *__restrict__ escapes, u32 number, u16 *__restrict__ words, u32 rows, u32 cols,
                   u32 stride, u32 base)
{
    const u64 row = blockIdx.x;
    u16 *out = words + row * cols;
    const u32 first = row_ptr[row], end = row_ptr[row + 1], shift = (base - 1) << 7;
#pragma unroll 4
    for (u32 column = 8 * threadIdx.x; column < cols; column += 8 * ROW_THREADS) {
        const u64 at = row * stride + column;
        const uint2 bytes = __ldcs((const uint2 *)(sm + at));
        const u32 eight = __ldcs(nibbles + at / 8);
        u32 pairs[4] = {relative_pair<0>(bytes.x, eight), relative_pair<1>(bytes.x, eight),
                        relative_pair<2>(bytes.y, eight), relative_pair<3>(bytes.y, eight)};
#pragma unroll
        for (u32 i = 0; i < 4; i++) /* a nibble other than 0, plus 15, carries into the next bit */
            pairs[i] += (((pairs[i] & NIBBLE_PAIR) + NIBBLE_PAIR) >> 11 & 0x00010001u) * shift;
        if (cols % 8 == 0) {
            *(uint4 *)(out + column) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        } else {
#pragma unroll
            for (u32 i = 0; i < 8; i++)
                if (column + i < cols)
                    out[column + i] = (u16)(pairs[i / 2] >> i % 2 * 16);
        }
    }
    __syncthreads();
    for (u32 i = first + threadIdx.x; i < min(end, number); i += ROW_THREADS)
        if ((escapes[i] & 0xffff) < cols)
            out[escapes[i] & 0xffff] = (u16)(escapes[i] >> 16);
}

/* Whether a palette is one: a warp per row, with a status each. Decoders are safe without it, this says
 * what is wrong. Rows begin where the one before ends, columns ascend, and at the place of an escape the
 * planes hold +0. */
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    palette_check(const u8 *__restrict__ sm, const u32 *__restrict__ nibbles, const u32 *__restrict__ row_ptr,
                  const u32 *__restrict__ escapes, u32 number, u32 *__restrict__ status, u32 rows, u32 cols,
                  u32 stride)
{
    const u32 lane = threadIdx.x % WARP;
    const u64 row = blockIdx.x * (ROW_THREADS / WARP) + threadIdx.x / WARP;
    if (row >= rows)
        return;
    const u32 first = row_ptr[row], end = row_ptr[row + 1];
    u32 worst = SOUND;
    if (first > end || end > number || (row == 0 && first != 0) || (row + 1 == rows && end != number)) {
        worst = BAD_ROW;
    } else {
        for (u32 i = first + lane; i < end; i += WARP) {
            const u32 column = escapes[i] & 0xffff;
            const u64 at = row * stride + column;
            if (column >= cols)
                worst = max(worst, (u32)BAD_COLUMN);
            else if (i > first && (escapes[i - 1] & 0xffff) >= column)
                worst = max(worst, (u32)BAD_ORDER);
            else if (sm[at] || nibbles[at / 8] >> (column % 2 * 16 + column % 8 / 2 * 4) & 15)
                worst = max(worst, (u32)BAD_PLACE);
        }
    }
    worst = __reduce_max_sync(ALL_LANES, worst);
    if (lane == 0)
        status[row] = worst;
}
