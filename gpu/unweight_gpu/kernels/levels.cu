/* Words on a grid of levels (../../../codecs/unweight_codecs/specs/levels.md): the same bits as every
 * other decoder, so each product and sum is rounded by itself. */

enum Dtype { BF16, F16, F32 };

/* To nearest, ties to even. The value is finite. */
__device__ __forceinline__ u32 bf16_of(float value)
{
    const u32 bits = __float_as_uint(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* To nearest, ties to even; too large ones become infinite. */
__device__ __forceinline__ u32 f16_of(float value)
{
    const u32 bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x47800000) /* 2^16 */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) /* 2^-14: adding 1/2 rounds to a multiple of 2^-24 */
        return sign | (__float_as_uint(__fadd_rn(__uint_as_float(magnitude), 0.5f)) - 0x3f000000);
    return sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
}

/* What the low-rank factors of the tile predict for word `at` of the tensor. */
__device__ float prediction_of(const Tensor &tensor, u64 at, const u8 *parameters)
{
    const u64 i = at / tensor.columns, j = at % tensor.columns, rank = tensor.rank;
    const u64 a = i / tensor.tile_rows, b = j / tensor.tile_columns;
    const u16 *weights = (const u16 *)(parameters + tensor.weights) + (a * tensor.across + b) * rank;
    const signed char *left = (const signed char *)(parameters + tensor.left) + (i * tensor.across + b) * rank;
    const signed char *right = (const signed char *)(parameters + tensor.right) + a * rank * tensor.columns + j;
    int sum = 0;
    for (u32 k = 0; k < rank; k++)
        sum += (int)weights[k] * left[k] * right[k * tensor.columns];
    return __fmul_rn((float)sum, tensor.scale);
}

/* Whether the tables and factors of a tensor lie in the buffer of parameters. */
__device__ bool grid_is_sound(const Tensor &tensor, const Buffers &buffers)
{
    const u64 rows = tensor.columns ? tensor.words / tensor.columns : 0, total = buffers.parameter_bytes;
    if (tensor.has_table && !inside(tensor.level_table, 4 * (u64)tensor.limit, total))
        return false;
    if (!tensor.rank)
        return true;
    return rows && tensor.tile_rows && tensor.tile_columns &&
           inside(tensor.weights, 2ull * tensor.down * tensor.across * tensor.rank, total) &&
           inside(tensor.left, rows * tensor.across * tensor.rank, total) &&
           inside(tensor.right, tensor.columns * tensor.down * tensor.rank, total);
}

template <u32 BYTES> __device__ __forceinline__ u32 word_of(float value, u32 dtype)
{
    return BYTES == 4 ? __float_as_uint(value) : dtype == BF16 ? bf16_of(value) : f16_of(value);
}

template <u32 BYTES>
__device__ u32 decode_levels(const Chunk &chunk, const Tensor &tensor, const SlotTable &tables, bool has_tables,
                             const Buffers &buffers)
{
    const u32 lane = threadIdx.x % WARP, count = chunk.count;
    if (!is_sound(chunk.symbol, count, buffers) || !parts_are_sound(chunk, tensor, buffers) ||
        chunk.escape.offset % 8 != 0 || chunk.escape.length % BYTES != 0 || chunk.out % 16 != 0 ||
        !inside(chunk.escape.offset, chunk.escape.length, buffers.coded_bytes) ||
        !inside(chunk.out, (u64)count * BYTES, buffers.out_bytes))
        return BAD_SEGMENT;
    Symbols source;
    if (!source.open(chunk, tables, has_tables, lane, buffers) || !grid_is_sound(tensor, buffers))
        return BAD_TABLE;
    Escapes escapes = {buffers.coded + chunk.escape.offset, chunk.escape.length / BYTES};
    u8 *out = buffers.out + chunk.out;
    const int *levels = (const int *)(buffers.parameters + tensor.level_table);
    for (u32 group = 0; group < count; group += GROUP) {
        const u32 at = group + 4 * lane, valid = valid_of(at, count);
        const u32 symbols = source.four(chunk, tables, 0, at, lane, buffers);
        if (source.are_short())
            return BAD_STATES;
        u32 kept = 0;
        for (u32 i = 0; i < 4; i++)
            kept |= (valid >> 8 * i & 1) && (symbols >> 8 * i & 0xff) >= tensor.limit ? 1u << i : 0;
        const u8 *from = nullptr;
        if (__any_sync(ALL_LANES, kept != 0) && !escapes.take(__popc(kept), lane, BYTES, &from))
            return BAD_ESCAPES;
        if (!valid)
            continue;
        const u32 low = tensor.low_bits ? four_values(chunk.parts[0], at, buffers) : 0;
        u32 words[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 symbol = symbols >> 8 * i & 0xff;
            if (kept >> i & 1) {
                words[i] = BYTES == 4 ? *(const u32 *)from : *(const u16 *)from;
                from += BYTES;
                continue;
            }
            if (at + i >= count) {
                words[i] = 0;
                continue;
            }
            const int level = tensor.has_table ? levels[symbol]
                                               : (int)(symbol << tensor.low_bits | (low >> 8 * i & 0xff)) -
                                                     (int)tensor.bias;
            float value = __fmul_rn((float)level, chunk.step);
            if (tensor.rank)
                value = __fadd_rn(value, prediction_of(tensor, chunk.first + at + i, buffers.parameters));
            words[i] = word_of<BYTES>(value, tensor.dtype);
        }
        if constexpr (BYTES == 4)
            store_four(out + (u64)at * BYTES, words, count - at);
        else
            store_pairs(out + (u64)at * BYTES, words[0] | words[1] << 16, words[2] | words[3] << 16, count - at);
    }
    if (!source.end_well())
        return BAD_STATES;
    return escapes.left ? BAD_ESCAPES : DONE;
}

template <u32 BYTES> struct Levels {
    __device__ u32 operator()(const Chunk &chunk, const Tensor &tensor, const SlotTable &tables, bool has_tables,
                              const Buffers &buffers) const
    {
        return decode_levels<BYTES>(chunk, tensor, tables, has_tables, buffers);
    }
};

DECODER(decode_levels_2, Levels<2>, SlotTable)
DECODER(decode_levels_4, Levels<4>, SlotTable)
