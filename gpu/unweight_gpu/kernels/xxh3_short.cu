/* XXH3, 64 bits, seed 0, default secret: constants, mixing, and digests of up to 240 bytes.
 *
 * After the algorithm description of xxHash (doc/xxhash_spec.md of Cyan4973/xxHash). */

#define MEDIUM 240u /* the longest input that is digested without accumulators */

#define PRIME32_1 0x9e3779b1u
#define PRIME32_2 0x85ebca77u
#define PRIME32_3 0xc2b2ae3du
#define PRIME64_1 0x9e3779b185ebca87ull
#define PRIME64_2 0xc2b2ae3d27d4eb4full
#define PRIME64_3 0x165667b19e3779f9ull
#define PRIME64_4 0x85ebca77c2b2ae63ull
#define PRIME64_5 0x27d4eb2f165667c5ull
#define PRIME_MX1 0x165667919e3779f9ull
#define PRIME_MX2 0x9fb21c651e98df25ull

/* The default secret, as little-endian words. */
__constant__ u64 SECRET[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
    0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
    0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
    0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
    0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull,
};

/* The 8 bytes of the secret from byte `offset`. */
__device__ __forceinline__ u64 secret_at(u32 offset)
{
    const u32 word = offset / 8, shift = offset % 8 * 8;
    return shift ? SECRET[word] >> shift | SECRET[word + 1] << (64 - shift) : SECRET[word];
}

__device__ __forceinline__ u32 u32_at(const u8 *at)
{
    return (u32)at[0] | (u32)at[1] << 8 | (u32)at[2] << 16 | (u32)at[3] << 24;
}

/* The 8 bytes at `at`, of any alignment; one load where it is a multiple of 8. */
__device__ __forceinline__ u64 u64_at(const u8 *at)
{
    return (u64)at % 8 ? (u64)u32_at(at + 4) << 32 | u32_at(at) : *(const u64 *)at;
}

__device__ __forceinline__ u64 bytes_reversed(u64 value)
{
    return (u64)__byte_perm((u32)value, 0, 0x0123) << 32 | __byte_perm((u32)(value >> 32), 0, 0x0123);
}

__device__ __forceinline__ u64 rotated(u64 value, u32 left)
{
    return value << left | value >> (64 - left);
}

/* The low half of the 128-bit product XOR its high half. */
__device__ __forceinline__ u64 folded_product(u64 left, u64 right)
{
    const u64 mask = 0xffffffffull, left_high = left >> 32, right_high = right >> 32;
    const u64 lowest = (left & mask) * (right & mask);
    const u64 cross = left_high * (right & mask) + (lowest >> 32);
    const u64 middle = (left & mask) * right_high + (cross & mask);
    const u64 high = left_high * right_high + (cross >> 32) + (middle >> 32);
    return (middle << 32 | (lowest & mask)) ^ high;
}

__device__ __forceinline__ u64 avalanche(u64 value)
{
    value = (value ^ value >> 37) * PRIME_MX1;
    return value ^ value >> 32;
}

__device__ __forceinline__ u64 avalanche_xxh64(u64 value)
{
    value = (value ^ value >> 33) * PRIME64_2;
    value = (value ^ value >> 29) * PRIME64_3;
    return value ^ value >> 32;
}

/* Mixes 16 bytes with those of the secret. */
__device__ __forceinline__ u64 mixed(const u8 *at, u32 secret)
{
    return folded_product(u64_at(at) ^ secret_at(secret), u64_at(at + 8) ^ secret_at(secret + 8));
}

/* The digest of up to 16 bytes. */
__device__ __forceinline__ u64 digest_of_few(const u8 *data, u32 length)
{
    if (length > 8) {
        const u64 low = secret_at(24) ^ secret_at(32) ^ u64_at(data);
        const u64 high = secret_at(40) ^ secret_at(48) ^ u64_at(data + length - 8);
        return avalanche(length + bytes_reversed(low) + high + folded_product(low, high));
    }
    if (length >= 4) {
        u64 value = (u64)u32_at(data) << 32 | u32_at(data + length - 4);
        value ^= secret_at(8) ^ secret_at(16);
        value = (value ^ rotated(value, 49) ^ rotated(value, 24)) * PRIME_MX2;
        value = (value ^ ((value >> 35) + length)) * PRIME_MX2;
        return value ^ value >> 28;
    }
    if (length > 0) {
        const u32 first = data[0], middle = data[length / 2], last = data[length - 1];
        const u32 value = last | length << 8 | first << 16 | middle << 24;
        return avalanche_xxh64((u32)SECRET[0] ^ (u32)(SECRET[0] >> 32) ^ value);
    }
    return avalanche_xxh64(secret_at(56) ^ secret_at(64));
}

/* The digest of 17 to 240 bytes. */
__device__ __forceinline__ u64 digest_of_some(const u8 *data, u32 length)
{
    u64 sum = length * PRIME64_1;
    if (length <= 128) {
        for (u32 at = 0; at * 2 < length; at += 16) {
            sum += mixed(data + at, at * 2);
            sum += mixed(data + length - at - 16, at * 2 + 16);
        }
        return avalanche(sum);
    }
    for (u32 at = 0; at < 128; at += 16)
        sum += mixed(data + at, at);
    sum = avalanche(sum);
    for (u32 at = 128; at + 16 <= length; at += 16)
        sum += mixed(data + at, at - 128 + 3);
    return avalanche(sum + mixed(data + length - 16, 136 - 17));
}

/* The digest of up to MEDIUM bytes, by any lane. */
__device__ __noinline__ u64 digest_of_short(const u8 *data, u32 length)
{
    return length > 16 ? digest_of_some(data, length) : digest_of_few(data, length);
}
