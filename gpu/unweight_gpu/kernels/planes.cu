/* The planes of a palette matrix, as every kernel of palettes reads them (../palette/format.py). */

#define NIBBLE_PAIR 0x07800780u /* the lower half of the exponent fields of two BF16 words */

/* Two neighbouring weights as BF16 words, the first in the low half, whose exponent fields hold their
 * nibbles: words relative to the base. `four` are the sign and mantissa bytes of four weights, `eight`
 * the nibbles of the eight weights that they belong to. A byte fills both bytes of a half, so that the
 * mask finds the sign at the top of it and the mantissa at the bottom. */
template <u32 PAIR> __device__ __forceinline__ u32 relative_pair(u32 four, u32 eight)
{
    const u32 fields = PAIR == 0 ? eight << 7 : PAIR == 1 ? eight << 3 : PAIR == 2 ? eight >> 1 : eight >> 5;
    return (__byte_perm(four, 0, PAIR % 2 ? 0x3322 : 0x1100) & 0x807f807fu) | (fields & NIBBLE_PAIR);
}

/* Four nibbles, a byte each, as the first four of eight lie in the plane; the others lie 8 bits higher. */
__device__ __forceinline__ u32 four_nibbles(u32 four)
{
    return __byte_perm(four, 0, 0x4140) | __byte_perm(four, 0, 0x4342) << 4;
}
