/* Comparison: whether two buffers are equal, and how far apart their words are.
 *
 * Buffers are read in vectors of 16 bytes and must start at a multiple of 16. The number of thread blocks
 * in a launch changes no result: sums of floats are formed in a fixed order. */

#define THREADS 256u /* of a thread block, in all kernels of this module */
#define SHARE 4096u  /* vectors that one thread block of `squared_error` sums up */
#define NONE (~(u64)0)

/* Lowers `first`, ~0 at the start, to the offset of the first byte that differs. */
extern "C" __global__ void __launch_bounds__(THREADS)
first_difference(const u8 *__restrict__ left, const u8 *__restrict__ right, u64 bytes, u64 *first)
{
    const u64 vectors = bytes / 16, threads = (u64)gridDim.x * THREADS;
    for (u64 index = (u64)blockIdx.x * THREADS + threadIdx.x; index < vectors; index += threads) {
        const uint4 one = ((const uint4 *)left)[index], two = ((const uint4 *)right)[index];
        const u32 changed[4] = {one.x ^ two.x, one.y ^ two.y, one.z ^ two.z, one.w ^ two.w};
        if (!(changed[0] | changed[1] | changed[2] | changed[3]))
            continue;
        u32 at = 16;
#pragma unroll
        for (u32 word = 4; word-- > 0;)
            at = changed[word] ? word * 4 + (u32)(__ffs((int)changed[word]) - 1) / 8 : at;
        atomicMin(first, index * 16 + at);
        break; /* what follows lies behind it */
    }
    const u64 rest = vectors * 16 + threadIdx.x;
    if (blockIdx.x == 0 && rest < bytes && left[rest] != right[rest])
        atomicMin(first, rest);
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

/* Formats of words: their bits, those of the exponent and its lowest one in each word of a u32. */
struct Bf16 {
    static const u32 BITS = 16, EXPONENTS = 0x7f807f80, ONES = 0x00800080;
    static __device__ __forceinline__ float value(u32 word) { return __uint_as_float(word << 16); }
};

struct F16 {
    static const u32 BITS = 16, EXPONENTS = 0x7c007c00, ONES = 0x04000400;
    static __device__ __forceinline__ float value(u32 word)
    {
        const u32 magnitude = word & 0x7fffu, sign = (word & 0x8000u) << 16;
        if (magnitude < 0x0400u) /* subnormal: a multiple of 2^-24 */
            return __uint_as_float(__float_as_uint((float)magnitude * 0x1p-24f) | sign);
        const u32 bias = magnitude < 0x7c00u ? 127u - 15u : 255u - 31u;
        return __uint_as_float(((magnitude << 13) + (bias << 23)) | sign);
    }
};

struct F32 {
    static const u32 BITS = 32, EXPONENTS = 0x7f800000, ONES = 0x00800000;
    static __device__ __forceinline__ float value(u32 word) { return __uint_as_float(word); }
};

/* Sets the words of a u32 that are not finite to zero, before and after, once they are found to be equal. */
template <typename Format>
__device__ __forceinline__ void set_aside(Errors &sums, u32 &before, u32 &after, u64 index)
{
    const u32 word = 0xffffffffu >> (32 - Format::BITS), exponent = Format::EXPONENTS & word;
#pragma unroll
    for (u32 bit = 0; bit < 32; bit += Format::BITS, index++) {
        if ((before >> bit & exponent) != exponent)
            continue;
        if ((before ^ after) >> bit & word && index < sums.broken)
            sums.broken = index;
        before &= ~(word << bit);
        after &= ~(word << bit);
    }
}

template <typename Format>
__device__ __forceinline__ void add_vector(Errors &sums, const uint4 &before, const uint4 &after, u64 index)
{
    u32 befores[4] = {before.x, before.y, before.z, before.w};
    u32 afters[4] = {after.x, after.y, after.z, after.w};
    const u32 per_u32 = 32 / Format::BITS, signs = Format::EXPONENTS + Format::ONES;
    u32 not_finite = 0; /* an exponent of ones alone carries into the sign */
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        not_finite |= (befores[i] & Format::EXPONENTS) + Format::ONES;
    if (not_finite & signs) {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            set_aside<Format>(sums, befores[i], afters[i], (index * 4 + i) * per_u32);
    }
#pragma unroll
    for (u32 word = 0; word < 4 * per_u32; word++) {
        const u32 shift = word % per_u32 * 16, mask = 0xffffffffu >> (32 - Format::BITS);
        const double value = Format::value(befores[word / per_u32] >> shift & mask);
        const double changed = Format::value(afters[word / per_u32] >> shift & mask);
        const double difference = __dsub_rn(changed, value);
        sums.square = __dadd_rn(sums.square, __dmul_rn(value, value));
        sums.error = __dadd_rn(sums.error, __dmul_rn(difference, difference));
        const u64 distance = (u64)__double_as_longlong(difference) & ~((u64)1 << 63);
        sums.largest = distance > sums.largest ? distance : sums.largest;
    }
}

/* The bytes behind the last whole vector, and zeros, which add nothing to any sum. */
__device__ __forceinline__ uint4 rest_of(const u8 *buffer, u64 bytes)
{
    const u8 *rest = buffer + bytes / 16 * 16;
    u32 words[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 at = 0; at < 15; at++)
        if (at < bytes % 16)
            words[at / 4] |= (u32)rest[at] << at % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Sums those of all threads, of t and t + 128 first, and writes the result. */
__device__ __forceinline__ void sum_threads(const Errors &sums, Errors *of_threads, Errors *result)
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
__device__ __forceinline__ void sum_share(const u8 *original, const u8 *decoded, u64 bytes,
                                            Errors *of_threads, Errors *partial)
{
    Errors sums = no_errors();
    const u64 vectors = bytes / 16, start = (u64)blockIdx.x * SHARE;
    for (u64 index = start + threadIdx.x; index < vectors && index < start + SHARE; index += THREADS)
        add_vector<Format>(sums, ((const uint4 *)original)[index], ((const uint4 *)decoded)[index], index);
    if (bytes % 16 && vectors / SHARE == blockIdx.x && vectors % THREADS == threadIdx.x)
        add_vector<Format>(sums, rest_of(original, bytes), rest_of(decoded, bytes), vectors);
    sum_threads(sums, of_threads, &partial[blockIdx.x]);
}

/* One thread block per SHARE vectors; `partial` has room for one result of each. */
extern "C" __global__ void __launch_bounds__(THREADS)
squared_error_bf16(const u8 *__restrict__ original, const u8 *__restrict__ decoded, u64 bytes,
                   Errors *__restrict__ partial)
{
    __shared__ Errors of_threads[THREADS];
    sum_share<Bf16>(original, decoded, bytes, of_threads, partial);
}

extern "C" __global__ void __launch_bounds__(THREADS)
squared_error_f16(const u8 *__restrict__ original, const u8 *__restrict__ decoded, u64 bytes,
                  Errors *__restrict__ partial)
{
    __shared__ Errors of_threads[THREADS];
    sum_share<F16>(original, decoded, bytes, of_threads, partial);
}

extern "C" __global__ void __launch_bounds__(THREADS)
squared_error_f32(const u8 *__restrict__ original, const u8 *__restrict__ decoded, u64 bytes,
                  Errors *__restrict__ partial)
{
    __shared__ Errors of_threads[THREADS];
    sum_share<F32>(original, decoded, bytes, of_threads, partial);
}

/* Sums `count` partial results; a single thread block. */
extern "C" __global__ void __launch_bounds__(THREADS)
total_error(const Errors *__restrict__ partial, u64 count, Errors *__restrict__ total)
{
    __shared__ Errors of_threads[THREADS];
    Errors sums = no_errors();
    for (u64 index = threadIdx.x; index < count; index += THREADS)
        add_errors(sums, partial[index]);
    sum_threads(sums, of_threads, total);
}
