/* Verification: whether two buffers are equal, how far apart their words are, and how words are spread.
 *
 * Buffers are read in pieces of 16 bytes and must start at a multiple of 16. The number of blocks in a
 * launch changes no result: bytes and counts are exact, and sums of floats are formed in a fixed order. */

#define THREADS 256u       /* of a block, in all kernels of this file */
#define SEGMENT 4096u      /* pieces that one block of `squared_error` sums up */
#define COUNTERS_LOG2 13u  /* of the counters of a block: 32 KiB */
#define NONE (~(u64)0)

/* Piece `index` of `bytes` bytes; what lies beyond them reads as zero. */
__device__ __forceinline__ uint4 piece_at(const u8 *buffer, u64 bytes, u64 index)
{
    if (index < bytes / 16)
        return ((const uint4 *)buffer)[index];
    const u8 *rest = buffer + index * 16;
    u32 words[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 at = 0; at < 16; at++)
        if (index * 16 + at < bytes)
            words[at / 4] |= (u32)rest[at] << at % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Lowers `first`, ~0 at the start, to the offset of the first byte that differs. */
extern "C" __global__ void __launch_bounds__(THREADS)
first_difference(const u8 *__restrict__ left, const u8 *__restrict__ right, u64 bytes, u64 *first)
{
    const u64 threads = (u64)gridDim.x * THREADS;
    for (u64 index = (u64)blockIdx.x * THREADS + threadIdx.x; index * 16 < bytes; index += threads) {
        const uint4 one = piece_at(left, bytes, index), two = piece_at(right, bytes, index);
        const u32 changed[4] = {one.x ^ two.x, one.y ^ two.y, one.z ^ two.z, one.w ^ two.w};
        if (!(changed[0] | changed[1] | changed[2] | changed[3]))
            continue;
        u32 at = 16;
#pragma unroll
        for (u32 word = 4; word-- > 0;)
            at = changed[word] ? word * 4 + (u32)(__ffs((int)changed[word]) - 1) / 8 : at;
        atomicMin(first, index * 16 + at);
        return; /* the pieces that follow lie behind it */
    }
}

/* What `squared_error` finds. Not negative, so its bits are in the order of its values and above all of
 * them are those of NaN: `largest` is the larger pattern of bits. */
struct Errors {
    double square; /* sum of squares of the finite original words */
    double error;  /* sum of squares of their errors */
    u64 largest;   /* bits of the largest absolute error */
    u64 broken;    /* index of the first word that is not finite and became another one, or NONE */
};

__device__ __forceinline__ Errors no_errors()
{
    const Errors none = {0, 0, 0, NONE};
    return none;
}

__device__ __forceinline__ void add_errors(Errors &sums, const Errors &more)
{
    sums.square = __dadd_rn(sums.square, more.square);
    sums.error = __dadd_rn(sums.error, more.error);
    sums.largest = more.largest > sums.largest ? more.largest : sums.largest;
    sums.broken = more.broken < sums.broken ? more.broken : sums.broken;
}

struct Bf16 {
    static const u32 BITS = 16, INFINITY_BITS = 0x7f80;
    static __device__ __forceinline__ float value(u32 word) { return __uint_as_float(word << 16); }
};

struct F16 {
    static const u32 BITS = 16, INFINITY_BITS = 0x7c00;
    static __device__ __forceinline__ float value(u32 word)
    {
        const u32 magnitude = word & 0x7fffu, sign = (word & 0x8000u) << 16;
        if (magnitude < 0x0400u) /* subnormal: a multiple of 2^-24 */
            return __uint_as_float(__float_as_uint((float)magnitude * 0x1p-24f) | sign);
        const u32 bias = magnitude < INFINITY_BITS ? 127u - 15u : 255u - 31u;
        return __uint_as_float(((magnitude << 13) + (bias << 23)) | sign);
    }
};

struct F32 {
    static const u32 BITS = 32, INFINITY_BITS = 0x7f800000;
    static __device__ __forceinline__ float value(u32 word) { return __uint_as_float(word); }
};

template <typename Format>
__device__ __forceinline__ void add_word(Errors &sums, u32 before, u32 after, u64 index)
{
    const u32 magnitude = before & (0xffffffffu >> (33 - Format::BITS));
    if (magnitude >= Format::INFINITY_BITS) {
        if (before != after && index < sums.broken)
            sums.broken = index;
        return;
    }
    const double value = Format::value(before);
    const double difference = __dadd_rn(Format::value(after), -value);
    sums.square = __dadd_rn(sums.square, __dmul_rn(value, value));
    sums.error = __dadd_rn(sums.error, __dmul_rn(difference, difference));
    const u64 distance = (u64)__double_as_longlong(difference) & ~((u64)1 << 63);
    sums.largest = distance > sums.largest ? distance : sums.largest;
}

template <typename Format>
__device__ __forceinline__ void add_piece(Errors &sums, const uint4 &before, const uint4 &after, u64 index)
{
    const u32 befores[4] = {before.x, before.y, before.z, before.w};
    const u32 afters[4] = {after.x, after.y, after.z, after.w};
    const u32 per_piece = 128 / Format::BITS, per_u32 = 32 / Format::BITS;
#pragma unroll
    for (u32 word = 0; word < per_piece; word++) {
        const u32 shift = word % per_u32 * 16, mask = 0xffffffffu >> (32 - Format::BITS);
        add_word<Format>(sums, befores[word / per_u32] >> shift & mask,
                         afters[word / per_u32] >> shift & mask, index * per_piece + word);
    }
}

/* Sums those of all threads, of t and t + 128 first, and writes the result. */
__device__ __forceinline__ void sum_block(const Errors &sums, Errors *of_threads, Errors *result)
{
    of_threads[threadIdx.x] = sums;
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            add_errors(of_threads[threadIdx.x], of_threads[threadIdx.x + half]);
    }
    if (threadIdx.x == 0)
        *result = of_threads[0];
}

template <typename Format>
__device__ __forceinline__ void sum_segment(const u8 *original, const u8 *decoded, u64 bytes,
                                            Errors *of_threads, Errors *partial)
{
    Errors sums = no_errors();
    for (u32 at = threadIdx.x; at < SEGMENT; at += THREADS) {
        const u64 index = (u64)blockIdx.x * SEGMENT + at;
        if (index * 16 >= bytes)
            break;
        add_piece<Format>(sums, piece_at(original, bytes, index), piece_at(decoded, bytes, index), index);
    }
    sum_block(sums, of_threads, &partial[blockIdx.x]);
}

/* One block per SEGMENT pieces; `partial` has room for one result of each. */
extern "C" __global__ void __launch_bounds__(THREADS)
squared_error_bf16(const u8 *__restrict__ original, const u8 *__restrict__ decoded, u64 bytes,
                   Errors *__restrict__ partial)
{
    __shared__ Errors of_threads[THREADS];
    sum_segment<Bf16>(original, decoded, bytes, of_threads, partial);
}

extern "C" __global__ void __launch_bounds__(THREADS)
squared_error_f16(const u8 *__restrict__ original, const u8 *__restrict__ decoded, u64 bytes,
                  Errors *__restrict__ partial)
{
    __shared__ Errors of_threads[THREADS];
    sum_segment<F16>(original, decoded, bytes, of_threads, partial);
}

extern "C" __global__ void __launch_bounds__(THREADS)
squared_error_f32(const u8 *__restrict__ original, const u8 *__restrict__ decoded, u64 bytes,
                  Errors *__restrict__ partial)
{
    __shared__ Errors of_threads[THREADS];
    sum_segment<F32>(original, decoded, bytes, of_threads, partial);
}

/* Sums `count` partial results; a single block. */
extern "C" __global__ void __launch_bounds__(THREADS)
total_error(const Errors *__restrict__ partial, u64 count, Errors *__restrict__ total)
{
    __shared__ Errors of_threads[THREADS];
    Errors sums = no_errors();
    for (u64 index = threadIdx.x; index < count; index += THREADS)
        add_errors(sums, partial[index]);
    sum_block(sums, of_threads, total);
}

/* The counters of a block. Every bin has several, and neighbouring lanes count in different ones, as
 * atomic additions of a warp to one counter happen one after the other. Bins that do not fit are
 * left to blocks of another blockIdx.y. */
struct Counters {
    u32 *counts;
    u32 bins_log2, copies;

    __device__ __forceinline__ void count(u32 bin)
    {
        if (bin >> bins_log2 == blockIdx.y) {
            const u32 here = bin & ((1u << bins_log2) - 1);
            atomicAdd(&counts[here * copies + (threadIdx.x & (copies - 1))], 1u);
        }
    }
};

/* Adds to `bins`, 2^bits counters, how often each value of `field` & `mask` occurs, where `field` is a
 * word of word_bytes (1, 2, 4 or 8) shifted right by `shift`. gridDim.y blocks share the bins. Of
 * blocks of 2^block_log2 pieces, one in 2^skip_log2 is counted, the first one included. */
extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const u8 *__restrict__ words, u64 bytes, u32 word_bytes, u32 shift, u32 mask, u32 bits,
          u32 block_log2, u32 skip_log2, u32 *__restrict__ bins)
{
    __shared__ u32 counts[1u << COUNTERS_LOG2];
    Counters counters = {counts, bits < COUNTERS_LOG2 ? bits : COUNTERS_LOG2, 1};
    while (counters.copies < WARP && (counters.copies * 2) << counters.bins_log2 <= 1u << COUNTERS_LOG2)
        counters.copies *= 2;
    for (u32 i = threadIdx.x; i < counters.copies << counters.bins_log2; i += THREADS)
        counts[i] = 0;
    __syncthreads();

    const u64 pieces = bytes / 16, threads = (u64)gridDim.x * THREADS;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;; at += threads) {
        const u64 block = at >> block_log2;
        const u64 index = (block << skip_log2 << block_log2) + (at - (block << block_log2));
        if (index >= pieces)
            break;
        const uint4 piece = ((const uint4 *)words)[index];
        const u64 low = (u64)piece.y << 32 | piece.x, high = (u64)piece.w << 32 | piece.z;
        for (u32 bit = shift; bit < 64; bit += word_bytes * 8) {
            counters.count((u32)(low >> bit) & mask);
            counters.count((u32)(high >> bit) & mask);
        }
    }
    const u32 rest = (u32)(bytes % 16) / word_bytes; /* words behind the last whole piece */
    const bool sampled = (pieces >> block_log2 & ((1u << skip_log2) - 1)) == 0;
    if (blockIdx.x == 0 && sampled && threadIdx.x < rest) {
        const u8 *word = words + pieces * 16 + threadIdx.x * word_bytes;
        u64 value = 0;
        for (u32 at = 0; at < word_bytes; at++)
            value |= (u64)word[at] << at * 8;
        counters.count((u32)(value >> shift) & mask);
    }
    __syncthreads();

    for (u32 bin = threadIdx.x; bin < 1u << counters.bins_log2; bin += THREADS) {
        u32 sum = 0;
        for (u32 copy = 0; copy < counters.copies; copy++) /* each lane begins in another bank */
            sum += counts[bin * counters.copies + ((copy + threadIdx.x) & (counters.copies - 1))];
        if (sum)
            atomicAdd(&bins[(blockIdx.y << counters.bins_log2) + bin], sum);
    }
}
