/* What every kernel file begins with: names of types, and how a warp works together.
 * Plain CUDA C without includes, so that nvcc, NVRTC and a C++ compiler take the same text. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARP 32u
#define ALL_LANES 0xffffffffu
#define GROUP 128u /* words that a warp handles at a time: four neighbours per lane */

/* Whether `bytes` bytes from `offset` lie in a buffer of `total` bytes. */
__device__ __forceinline__ bool inside(u64 offset, u64 bytes, u64 total)
{
    return offset <= total && bytes <= total - offset;
}

/* The sum of `value` over the lanes below this one; `total` becomes that over all lanes. */
__device__ __forceinline__ u32 sum_below(u32 value, u32 lane, u32 *total)
{
    u32 sum = value;
    for (u32 distance = 1; distance < WARP; distance *= 2) {
        const u32 other = __shfl_up_sync(ALL_LANES, sum, distance);
        sum += lane >= distance ? other : 0;
    }
    *total = __shfl_sync(ALL_LANES, sum, WARP - 1);
    return sum - value;
}
