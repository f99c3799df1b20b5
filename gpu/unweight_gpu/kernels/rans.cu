/* The entropy coder of ../../../codecs/unweight_codecs/specs/rans32.md: a warp decodes a segment, a lane
 * of it a lane of the format. */

#define ALPHABET 256u
#define SLOTS 4096u
#define STATE_LOW 65536u
#define MAX_CONTEXTS 16

/* The sums of the frequencies below every value, and of all: by one warp. False unless that is 4096. */
template <class Sum> __device__ bool cumulate(const u16 *frequencies, u32 lane, Sum *starts)
{
    const u32 each = ALPHABET / WARP;
    u32 sum = 0, total;
    for (u32 i = 0; i < each; i++)
        sum += frequencies[lane * each + i];
    u32 start = sum_below(sum, lane, &total);
    for (u32 i = 0; i < each; i++) {
        starts[lane * each + i] = (Sum)start;
        start += frequencies[lane * each + i];
    }
    if (lane == WARP - 1)
        starts[ALPHABET] = (Sum)start;
    return total == SLOTS;
}

/* The value to which a slot belongs: the last whose slots start at or before it. */
template <class Sum> __device__ u32 value_of_slot(const Sum *starts, u32 slot)
{
    u32 value = 0;
    for (u32 half = ALPHABET / 2; half; half /= 2)
        value += starts[value + half] <= slot ? half : 0;
    return value;
}

/* One table for all symbols. Of every slot: its value, the frequency less 1 (from bit 8), and which of
 * the value's slots it is (from bit 20). */
struct SlotTable {
    u32 starts[ALPHABET + 1];
    u32 slots[SLOTS];
    u32 is_sound;

    __device__ void build(const u16 *frequencies, u32)
    {
        if (threadIdx.x < WARP) {
            const bool sound = cumulate(frequencies, threadIdx.x, starts);
            if (threadIdx.x == 0)
                is_sound = sound;
        }
        __syncthreads();
        for (u32 slot = threadIdx.x; slot < SLOTS; slot += blockDim.x) {
            const u32 value = value_of_slot(starts, slot), start = starts[value];
            slots[slot] = value | (starts[value + 1] - start - 1) << 8 | (slot - start) << 20;
        }
        __syncthreads();
    }

    __device__ __forceinline__ u32 take(u32 &state, u32) const
    {
        const u32 entry = slots[state % SLOTS];
        state = ((entry >> 8 & 0xfff) + 1) * (state / SLOTS) + (entry >> 20);
        return entry & 0xff;
    }
};

/* A table per context. 16 tables by slot would fill shared memory, so the value of every sixteenth slot is
 * kept, and the one wanted is rarely more than one away. */
struct ContextTables {
    u16 starts[MAX_CONTEXTS][ALPHABET + 2];
    u8 values[MAX_CONTEXTS][SLOTS / 16];
    u32 unsound;

    __device__ void build(const u16 *frequencies, u32 tables)
    {
        const u32 lane = threadIdx.x % WARP;
        if (threadIdx.x == 0)
            unsound = 0;
        __syncthreads();
        for (u32 k = threadIdx.x / WARP; k < tables; k += blockDim.x / WARP) {
            if (!cumulate(frequencies + k * ALPHABET, lane, starts[k]) && lane == 0)
                atomicOr(&unsound, 1u);
            __syncwarp();
            for (u32 i = lane; i < SLOTS / 16; i += WARP)
                values[k][i] = (u8)value_of_slot(starts[k], 16 * i);
        }
        __syncthreads();
    }

    __device__ __forceinline__ u32 take(u32 &state, u32 which) const
    {
        const u32 slot = state % SLOTS;
        const u16 *start = starts[which % MAX_CONTEXTS];
        u32 value = values[which % MAX_CONTEXTS][slot / 16];
        while (value < ALPHABET - 1 && start[value + 1] <= slot)
            value++;
        state = (u32)(start[value + 1] - start[value]) * (state / SLOTS) + slot - start[value];
        return value;
    }
};

__device__ __forceinline__ bool is_usable(const SlotTable &tables) { return tables.is_sound; }
__device__ __forceinline__ bool is_usable(const ContextTables &tables) { return !tables.unsound; }

/* A segment while it is decoded: the state of this lane, and the refill words that are left. */
struct Reader {
    const u16 *next, *end;
    u32 state;
    bool is_short;

    __device__ void open(const u8 *segment, u32 length, u32 lane)
    {
        state = ((const u32 *)segment)[lane];
        next = (const u16 *)segment + 2 * WARP;
        end = (const u16 *)segment + length / 2;
        is_short = false;
    }

    /* Whether lanes ended where encoding began, with all words taken. The same for all lanes. */
    __device__ bool ends_well() const
    {
        return __all_sync(ALL_LANES, state == STATE_LOW && next == end && !is_short);
    }
};

/* Four values of this lane, a byte each; `contexts` are theirs. A group takes at most 128 words: with
 * fewer left, each round checks that they do. */
template <class Tables>
__device__ __forceinline__ u32 four_coded(const Tables &tables, u32 contexts, u32 lanes_below, Reader &reader)
{
    const bool is_near = reader.end - reader.next < (long long)GROUP;
    u32 values = 0;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        values |= tables.take(reader.state, contexts >> 8 * i & 0xff) << 8 * i;
        const bool needs = reader.state < STATE_LOW;
        const u32 refills = __ballot_sync(ALL_LANES, needs);
        const u32 number = __popc(refills);
        if (is_near && (long long)number > reader.end - reader.next) {
            reader.is_short = true;
            return values;
        }
        if (needs)
            reader.state = reader.state << 16 | reader.next[__popc(refills & lanes_below)];
        reader.next += number;
    }
    return values;
}
