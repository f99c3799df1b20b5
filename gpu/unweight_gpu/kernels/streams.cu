/* Streams that are coded by rANS but are not symbols: a byte per value, for what joins words. */

struct Stream {
    u64 out; /* in the buffer of expanded streams */
    u32 count;
    u32 chunk; /* whose status it is */
    Source source;
};

extern "C" __global__ void __launch_bounds__(TEAM * WARP)
expand_streams(const Team *teams, const Stream *streams, BUFFERS)
{
    const Buffers buffers = THE_BUFFERS;
    __shared__ SlotTable table;
    const Team team = teams[blockIdx.x];
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool has_table = team.table < buffers.tables;
    if (has_table)
        table.build(buffers.frequencies + (u64)team.table * ALPHABET, 1);
    if (warp >= team.number)
        return;
    const Stream stream = streams[team.first + warp];
    const u32 count = stream.count, padded = (count + GROUP - 1) / GROUP * GROUP;
    u32 found = DONE;
    if (stream.chunk >= buffers.statuses)
        return;
    if (stream.source.kind != CODED || !is_sound(stream.source, count, buffers) || stream.out % 8 != 0 ||
        !inside(stream.out, padded, buffers.expanded_bytes))
        found = BAD_SEGMENT;
    else if (!has_table || !is_usable(table))
        found = BAD_TABLE;
    if (found == DONE) {
        Reader reader;
        u32 seen = 0; /* all bits that values have set */
        reader.open(buffers.coded + stream.source.offset, stream.source.length, lane);
        for (u32 at = 0; at < padded && !reader.is_short; at += GROUP) {
            const u32 four = four_coded(table, 0, (1u << lane) - 1, reader), mine = at + 4 * lane;
            *(u32 *)(buffers.expanded + stream.out + mine) = four;
            for (u32 i = 0; i < 4 && mine + i < count; i++)
                seen |= four >> 8 * i & 0xff;
        }
        if (!reader.ends_well())
            found = BAD_STATES;
        else if (__any_sync(ALL_LANES, seen >> stream.source.bits != 0))
            found = BAD_VALUE;
    }
    if (lane == 0 && found != DONE)
        atomicMax(&buffers.status[stream.chunk], found);
}

/* Words that are not split by exponent: byte k of a word is value k of its parts. */
template <u32 BYTES> __device__ void join_planes(const Team *teams, const Chunk *chunks, const Buffers &buffers)
{
    const Team team = teams[blockIdx.x];
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (warp >= team.number)
        return;
    const Chunk &chunk = chunks[team.first + warp];
    const u32 count = chunk.count;
    if (chunk.number >= buffers.statuses)
        return;
    bool sound = chunk.out % 8 == 0 && inside(chunk.out, (u64)count * BYTES, buffers.out_bytes);
    for (u32 k = 0; k < BYTES; k++)
        sound = sound && chunk.parts[k].kind != CODED && chunk.parts[k].bits == 8 &&
                is_sound(chunk.parts[k], count, buffers);
    if (!sound) {
        if (lane == 0)
            atomicMax(&buffers.status[chunk.number], (u32)BAD_SEGMENT);
        return;
    }
    u8 *out = buffers.out + chunk.out;
    for (u32 at = 4 * lane; at < count; at += GROUP) {
        u32 words[BYTES] = {0}; /* four words, in memory order */
#pragma unroll
        for (u32 k = 0; k < BYTES; k++) {
            const u32 four = four_values(chunk.parts[k], at, buffers);
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                words[(i * BYTES + k) / 4] |= (four >> 8 * i & 0xff) << (i * BYTES + k) % 4 * 8;
        }
        if (at + 4 <= count) {
#pragma unroll
            for (u32 k = 0; k < BYTES; k++)
                ((u32 *)(out + (u64)at * BYTES))[k] = words[k];
        } else {
#pragma unroll
            for (u32 i = 0; i < 4 * BYTES; i++)
                if (i < (count - at) * BYTES)
                    out[(u64)at * BYTES + i] = (u8)(words[i / 4] >> i % 4 * 8);
        }
    }
}

#define JOIN_PLANES(BYTES)                                                                          \
    extern "C" __global__ void __launch_bounds__(TEAM * WARP)                                       \
    join_planes_##BYTES(const Team *teams, const Chunk *chunks, const Tensor *, BUFFERS)           \
    {                                                                                               \
        const Buffers buffers = THE_BUFFERS;                                                        \
        join_planes<BYTES>(teams, chunks, buffers);                                                 \
    }
JOIN_PLANES(1)
JOIN_PLANES(2)
JOIN_PLANES(3)
JOIN_PLANES(4)
JOIN_PLANES(8)
