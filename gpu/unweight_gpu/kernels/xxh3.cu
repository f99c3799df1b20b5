/* XXH3 of ranges of a buffer: the checksums of chunks and the digests of tensors.
 *
 * Inputs of more than MEDIUM bytes go into eight accumulators by stripes of 64 bytes, sixteen to a
 * block. What the stripes of a block add to an accumulator can be summed in any order, so 32 lanes take four
 * stripes at a time: lane i the word i % 8 of stripe i / 8. Only the scrambling between blocks is a chain. */

#define THREADS 128u
#define STRIPE 64u
#define BLOCK 1024u /* bytes between two scramblings */
#define STRIPES (BLOCK / STRIPE)
#define ACCUMULATORS 8u
#define STRIPES_AT_ONCE (WARP / ACCUMULATORS)
#define ROUNDS (STRIPES / STRIPES_AT_ONCE) /* loads per lane for a block */
#define RUN 16u /* blocks that a warp of xxh3_blocks takes, and steps that xxh3_chains loads ahead */

#define OUTSIDE 1u   /* codes of a range: its bytes are not all in the buffer, */
#define NO_BLOCKS 2u /* or there are no sums for its blocks */

/* What the accumulators begin with. */
__constant__ u64 BEGIN[ACCUMULATORS] = {
    PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1,
};

/* What a lane has found of what stripes add to accumulators. */
struct Sums {
    u64 products; /* for the accumulator of its own words */
    u64 words;    /* for that of its neighbour */

    __device__ __forceinline__ void add(u64 word, u64 secret)
    {
        const u64 keyed = word ^ secret;
        products += (keyed & 0xffffffffull) * (keyed >> 32);
        words += word;
    }

    /* What all lanes together have for accumulator lane % 8. */
    __device__ __forceinline__ u64 of_warp() const
    {
        u64 sum = products + __shfl_xor_sync(ALL_LANES, words, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 8);
        return sum + __shfl_xor_sync(ALL_LANES, sum, 16);
    }
};

/* One lane's share of a block. */
struct Share {
    u32 offset;         /* of its first word */
    u64 secret[ROUNDS]; /* for its words, which are WARP words apart */

    __device__ __forceinline__ explicit Share(u32 lane) : offset(lane * 8)
    {
#pragma unroll
        for (u32 round = 0; round < ROUNDS; round++)
            secret[round] = SECRET[round * STRIPES_AT_ONCE + lane / ACCUMULATORS + lane % ACCUMULATORS];
    }

    __device__ __forceinline__ void load(const u8 *block, u64 words[ROUNDS]) const
    {
#pragma unroll
        for (u32 round = 0; round < ROUNDS; round++)
            words[round] = u64_at(block + round * WARP * 8 + offset);
    }

    __device__ __forceinline__ u64 sum_of_warp(const u64 words[ROUNDS]) const
    {
        Sums sums = {0, 0};
#pragma unroll
        for (u32 round = 0; round < ROUNDS; round++)
            sums.add(words[round], secret[round]);
        return sums.of_warp();
    }
};

__device__ __forceinline__ u64 scrambled(u64 accumulator, u64 secret)
{
    return (accumulator ^ accumulator >> 47 ^ secret) * PRIME32_1;
}

/* Blocks before the last one of a range of more than MEDIUM bytes. */
__device__ __forceinline__ u64 whole_blocks(u64 length)
{
    return length > MEDIUM ? (length - 1) / BLOCK : 0;
}

/* The digest of `length` bytes, more than MEDIUM, from what the whole blocks made of accumulator lane % 8. */
__device__ __forceinline__ u64 finished(u64 accumulator, const u8 *data, u64 length, const Share &share,
                                        u32 lane)
{
    const u32 index = lane % ACCUMULATORS, group = lane / ACCUMULATORS;
    const u8 *block = data + whole_blocks(length) * BLOCK;
    const u32 stripes = ((u32)(length - 1) & (BLOCK - 1)) / STRIPE; /* all but the last one */
    Sums sums = {0, 0};
#pragma unroll
    for (u32 round = 0; round < ROUNDS; round++)
        if (round * STRIPES_AT_ONCE + group < stripes)
            sums.add(u64_at(block + round * WARP * 8 + share.offset), share.secret[round]);
    if (group == 0)
        sums.add(u64_at(data + length - STRIPE + index * 8), secret_at(121 + index * 8));
    accumulator = (accumulator + sums.of_warp()) ^ secret_at(11 + index * 8);

    u64 merged = folded_product(accumulator, __shfl_xor_sync(ALL_LANES, accumulator, 1));
    merged += __shfl_xor_sync(ALL_LANES, merged, 2);
    merged += __shfl_xor_sync(ALL_LANES, merged, 4);
    return avalanche(length * PRIME64_1 + merged);
}

/* Writes the digest of each of `count` ranges of `data`, given as pairs of offset and length, and its code:
 * zero, or OUTSIDE, and then the digest is zero. A warp per range: for many ranges that are not long. */
extern "C" __global__ void __launch_bounds__(THREADS)
xxh3_ranges(const u8 *__restrict__ data, u64 total, const u64 *__restrict__ ranges, u32 count,
            u64 *__restrict__ digests, u32 *__restrict__ codes)
{
    const u32 lane = threadIdx.x % WARP, range = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (range >= count)
        return;
    const u64 offset = ranges[range * 2ull], length = ranges[range * 2ull + 1];
    const bool readable = inside(offset, length, total);
    u64 digest = 0;
    if (readable && length > MEDIUM) {
        const Share share(lane);
        const u64 secret = SECRET[16 + lane % ACCUMULATORS], blocks = whole_blocks(length);
        u64 accumulator = BEGIN[lane % ACCUMULATORS], words[ROUNDS];
        if (blocks)
            share.load(data + offset, words);
        for (u64 block = 0; block < blocks; block++) {
            u64 next[ROUNDS] = {0, 0, 0, 0};
            if (block + 1 < blocks)
                share.load(data + offset + (block + 1) * BLOCK, next);
            accumulator = scrambled(accumulator + share.sum_of_warp(words), secret);
#pragma unroll
            for (u32 round = 0; round < ROUNDS; round++)
                words[round] = next[round];
        }
        digest = finished(accumulator, data + offset, length, share, lane);
    } else if (readable) {
        digest = digest_of_short(data + offset, (u32)length);
    }
    if (lane == 0) {
        digests[range] = digest;
        codes[range] = readable ? 0 : OUTSIDE;
    }
}

/* The last range whose first block is not behind `block`: firsts[range] <= block. */
__device__ __forceinline__ u32 range_of(u64 block, const u64 *firsts, u32 count)
{
    u32 low = 0, high = count;
    while (high - low > 1) {
        const u32 middle = low + (high - low) / 2;
        if (firsts[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* For long ranges, before xxh3_chains: writes what each whole block of all ranges adds to the eight
 * accumulators. The blocks of range r are numbered from firsts[r] to before firsts[r + 1]; there are
 * `blocks` in all. A warp per RUN of them. Blocks that do not lie in their range get no sums. */
extern "C" __global__ void __launch_bounds__(THREADS)
xxh3_blocks(const u8 *__restrict__ data, u64 total, const u64 *__restrict__ ranges,
            const u64 *__restrict__ firsts, u32 count, u64 blocks, u64 *__restrict__ sums)
{
    const u32 lane = threadIdx.x % WARP;
    const u64 from = ((u64)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * RUN;
    if (from >= blocks)
        return;
    const Share share(lane);
    u32 range = range_of(from, firsts, count);
    for (u64 block = from; block < blocks && block < from + RUN; block++) {
        while (range + 1 < count && firsts[range + 1] <= block)
            range++;
        const u64 offset = ranges[range * 2ull], length = ranges[range * 2ull + 1];
        const u64 number = block - firsts[range];
        if (block < firsts[range] || number >= whole_blocks(length) || !inside(offset, length, total))
            continue;
        u64 words[ROUNDS];
        share.load(data + offset + number * BLOCK, words);
        const u64 sum = share.sum_of_warp(words);
        if (lane < ACCUMULATORS)
            sums[block * ACCUMULATORS + lane] = sum;
    }
}

/* For long ranges, after xxh3_blocks: the digest and the code of each range. A warp per range follows
 * the chain of scramblings, which reads one word in sixteen of what the range has. */
extern "C" __global__ void __launch_bounds__(WARP)
xxh3_chains(const u8 *__restrict__ data, u64 total, const u64 *__restrict__ ranges,
            const u64 *__restrict__ firsts, u64 blocks, const u64 *__restrict__ sums, u64 *__restrict__ digests, u32 *__restrict__ codes)
{
    const u32 lane = threadIdx.x, range = blockIdx.x, index = lane % ACCUMULATORS;
    const u64 offset = ranges[range * 2ull], length = ranges[range * 2ull + 1], own = whole_blocks(length);
    u32 code = inside(offset, length, total) ? 0 : OUTSIDE;
    if (!code && !inside(firsts[range], own, blocks))
        code = NO_BLOCKS;
    u64 digest = 0;
    if (!code && length <= MEDIUM) {
        digest = digest_of_short(data + offset, (u32)length);
    } else if (!code) {
        const u64 *sum = sums + firsts[range] * ACCUMULATORS + index, secret = SECRET[16 + index];
        u64 accumulator = BEGIN[index], ahead[RUN], done = 0;
#pragma unroll
        for (u32 step = 0; step < RUN; step++)
            ahead[step] = step < own ? sum[step * ACCUMULATORS] : 0;
        for (; done + RUN <= own; done += RUN) {
            u64 now[RUN];
#pragma unroll
            for (u32 step = 0; step < RUN; step++) {
                now[step] = ahead[step];
                ahead[step] = done + RUN + step < own ? sum[(done + RUN + step) * ACCUMULATORS] : 0;
            }
#pragma unroll
            for (u32 step = 0; step < RUN; step++)
                accumulator = scrambled(accumulator + now[step], secret);
        }
#pragma unroll
        for (u32 step = 0; step < RUN; step++)
            accumulator = done + step < own ? scrambled(accumulator + ahead[step], secret) : accumulator;
        digest = finished(accumulator, data + offset, length, Share(lane), lane);
    }
    if (lane == 0) {
        digests[range] = digest;
        codes[range] = code;
    }
}
