/* Histograms of a field of words. Counts are exact, so the order of threads and blocks is free. */

#define THREADS 256u      /* of a thread block */
#define COUNTERS_LOG2 13u /* of the counters of a thread block: 32 KiB */

/* The counters of a thread block. Every bin has several, and neighbouring lanes count in different ones, as
 * atomic additions of a warp to one counter happen one after the other. Bins that do not fit are
 * left to thread blocks of another blockIdx.y. */
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
 * word of word_bytes (1, 2, 4 or 8) shifted right by `shift`. gridDim.y thread blocks share the bins. Of
 * runs of 2^run_log2 vectors of 16 bytes, one in 2^skip_log2 is counted, the first one included. */
extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const u8 *__restrict__ words, u64 bytes, u32 word_bytes, u32 shift, u32 mask, u32 bits,
          u32 run_log2, u32 skip_log2, u32 *__restrict__ bins)
{
    __shared__ u32 counts[1u << COUNTERS_LOG2];
    Counters counters = {counts, bits < COUNTERS_LOG2 ? bits : COUNTERS_LOG2, 1};
    while (counters.copies < WARP && (counters.copies * 2) << counters.bins_log2 <= 1u << COUNTERS_LOG2)
        counters.copies *= 2;
    for (u32 i = threadIdx.x; i < counters.copies << counters.bins_log2; i += THREADS)
        counts[i] = 0;
    __syncthreads();

    const u64 vectors = bytes / 16, threads = (u64)gridDim.x * THREADS;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;; at += threads) {
        const u64 run = at >> run_log2;
        const u64 index = (run << skip_log2 << run_log2) + (at - (run << run_log2));
        if (index >= vectors)
            break;
        const uint4 vector = ((const uint4 *)words)[index];
        const u64 low = (u64)vector.y << 32 | vector.x, high = (u64)vector.w << 32 | vector.z;
        for (u32 bit = shift; bit < 64; bit += word_bytes * 8) {
            counters.count((u32)(low >> bit) & mask);
            counters.count((u32)(high >> bit) & mask);
        }
    }
    const u32 rest = (u32)(bytes % 16) / word_bytes; /* words behind the last whole vector */
    const bool sampled = (vectors >> run_log2 & ((1u << skip_log2) - 1)) == 0;
    if (blockIdx.x == 0 && sampled && threadIdx.x < rest) {
        const u8 *word = words + vectors * 16 + threadIdx.x * word_bytes;
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
