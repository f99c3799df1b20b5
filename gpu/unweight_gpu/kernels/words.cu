/* Float words, joined from symbols, escapes and parts (../../../codecs/unweight_codecs/specs/planes.md). */

/* Which of four bytes are `limit` or above: 0xff each. The limit is 1 to 128. */
__device__ __forceinline__ u32 bytes_from(u32 four, u32 limit)
{
    const u32 low = (four & 0x7f7f7f7fu) + (128 - limit) * 0x01010101u;
    return ((low | four) >> 7 & 0x01010101u) * 0xff;
}

/* The class of each of four neighbouring words, a byte each, by row and column of the first. */
struct Classifier {
    const u8 *row_scales, *column_scales, *context_of_sum;
    u64 row, column, columns, rows;

    /* Begins at the first word of this lane; false if scales lie outside of their buffer. */
    __device__ bool open(const Chunk &chunk, const Tensor &tensor, u32 lane, const Buffers &buffers)
    {
        const u64 first = chunk.first + 4 * lane, total = buffers.parameter_bytes;
        columns = tensor.columns;
        rows = columns ? tensor.words / columns : 0;
        if (!rows || !inside(tensor.row_scales, rows, total) || !inside(tensor.column_scales, columns, total) ||
            !inside(tensor.context_of_sum, 511, total))
            return false;
        row_scales = buffers.parameters + tensor.row_scales;
        column_scales = buffers.parameters + tensor.column_scales;
        context_of_sum = buffers.parameters + tensor.context_of_sum;
        row = first / columns;
        column = first % columns;
        return true;
    }

    __device__ u32 four() const
    {
        u32 found = 0;
        u64 r = row, c = column;
        for (u32 i = 0; i < 4 && r < rows; i++) {
            found |= (u32)context_of_sum[row_scales[r] + column_scales[c]] << 8 * i;
            if (++c == columns) {
                c = 0;
                r++;
            }
        }
        return found;
    }

    __device__ void advance(u32 words)
    {
        column += words;
        while (column >= columns) {
            column -= columns;
            row++;
        }
    }
};

/* The escapes of a chunk that lanes take in the order of words. */
struct Escapes {
    const u8 *next;
    u32 left; /* how many */

    /* Where those of this lane begin, given how many it takes; false when there are too few. */
    __device__ __forceinline__ bool take(u32 mine, u32 lane, u32 bytes, const u8 **from)
    {
        u32 total;
        const u32 below = sum_below(mine, lane, &total);
        if (total > left)
            return false;
        *from = next + below * bytes;
        next += total * bytes;
        left -= total;
        return true;
    }
};

/* Stores four words of 4 or 8 bytes, fewer at the end of a chunk. The address is a multiple of 16. */
template <class Word> __device__ __forceinline__ void store_four(u8 *out, const Word *words, u32 number)
{
    if (number < 4) {
#pragma unroll /* so that words stay in registers */
        for (u32 i = 0; i < 3; i++)
            if (i < number)
                ((Word *)out)[i] = words[i];
    } else if constexpr (sizeof(Word) == 8) {
        const u64 low = words[0], high = words[1], low2 = words[2], high2 = words[3];
        ((uint4 *)out)[0] = make_uint4((u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32));
        ((uint4 *)out)[1] = make_uint4((u32)low2, (u32)(low2 >> 32), (u32)high2, (u32)(high2 >> 32));
    } else {
        *(uint4 *)out = make_uint4((u32)words[0], (u32)words[1], (u32)words[2], (u32)words[3]);
    }
}

/* Stores four words of 1 byte, or two pairs of 2 bytes. */
__device__ __forceinline__ void store_bytes(u8 *out, u32 words, u32 number)
{
    if (number < 4) {
        for (u32 i = 0; i < number; i++)
            out[i] = (u8)(words >> 8 * i);
    } else {
        *(u32 *)out = words;
    }
}

__device__ __forceinline__ void store_pairs(u8 *out, u32 first, u32 second, u32 number)
{
    if (number < 4) {
        for (u32 i = 0; i < number; i++)
            ((u16 *)out)[i] = (u16)((i < 2 ? first : second) >> i % 2 * 16);
    } else {
        *(uint2 *)out = make_uint2(first, second);
    }
}

/* Two bytes of four, `0x4140` or `0x4342`, as halves of a word. */
__device__ __forceinline__ u32 halves_of(u32 four, u32 which) { return __byte_perm(four, 0, which); }

/* Two 2-byte words at a time, each in a half of a register. */
__device__ __forceinline__ u32 join_pair(const Tensor &tensor, u32 symbols, u32 exponents, u32 raw)
{
    const u32 low_bits = tensor.mantissa_bits - tensor.top_bits;
    const u32 low = ((1u << low_bits) - 1) * 0x00010001u, top = ((1u << tensor.top_bits) - 1) * 0x00010001u;
    return (raw >> low_bits & 0x00010001u) << 15 | exponents << tensor.mantissa_bits |
           (symbols & top) << low_bits | (raw & low);
}

template <class Word>
__device__ __forceinline__ Word join_word(const Tensor &tensor, u32 symbol, u32 exponent, Word raw)
{
    const u32 low_bits = tensor.mantissa_bits - tensor.top_bits;
    const Word low = ((Word)1 << low_bits) - 1, top = symbol & ((1u << tensor.top_bits) - 1);
    return raw >> low_bits << (tensor.exponent_bits + tensor.mantissa_bits) |
           (Word)exponent << tensor.mantissa_bits | top << low_bits | (raw & low);
}

/* Joins four words and stores them. Words of 8 bytes have exponents of 16 bits, others of 8. */
template <u32 BYTES>
__device__ __forceinline__ void join_four(const Tensor &tensor, const Chunk &chunk, const Buffers &buffers,
                                          u32 at, u32 number, u32 symbols, u64 exponents, u8 *out)
{
    if constexpr (BYTES == 2) {
        const u32 four = (u32)exponents, planes = four_values(chunk.parts[0], at, buffers);
        const u32 tops = tensor.parts > 1 ? four_values(chunk.parts[1], at, buffers) : 0;
        const u32 first = join_pair(tensor, halves_of(symbols, 0x4140), halves_of(four, 0x4140),
                                    halves_of(planes, 0x4140) | halves_of(tops, 0x4140) << 8);
        const u32 second = join_pair(tensor, halves_of(symbols, 0x4342), halves_of(four, 0x4342),
                                     halves_of(planes, 0x4342) | halves_of(tops, 0x4342) << 8);
        store_pairs(out, first, second, number);
    } else if constexpr (BYTES == 1) {
        const u32 tops = four_values(chunk.parts[0], at, buffers);
        u32 words = 0;
        for (u32 i = 0; i < 4; i++)
            words |= join_word<u32>(tensor, symbols >> 8 * i & 0xff, (u32)exponents >> 8 * i & 0xff,
                                    tops >> 8 * i & 0xff)
                     << 8 * i;
        store_bytes(out, words, number);
    } else if constexpr (BYTES == 4) {
        u32 words[4] = {0};
        for (u32 k = 0; k < tensor.parts; k++) {
            const u32 four = four_values(chunk.parts[k], at, buffers);
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                words[i] |= (four >> 8 * i & 0xff) << 8 * k;
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            words[i] = join_word<u32>(tensor, symbols >> 8 * i & 0xff, (u32)exponents >> 8 * i & 0xff, words[i]);
        store_four(out, words, number);
    } else {
        u64 words[4] = {0};
        for (u32 k = 0; k < tensor.parts; k++) {
            const u32 four = four_values(chunk.parts[k], at, buffers);
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                words[i] |= (u64)(four >> 8 * i & 0xff) << 8 * k;
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            words[i] = join_word<u64>(tensor, symbols >> 8 * i & 0xff, (u32)(exponents >> 16 * i) & 0xffff, words[i]);
        store_four(out, words, number);
    }
}

/* The exponents of four words: those of symbols in the window, and of the others the next escapes. */
template <u32 BYTES>
__device__ __forceinline__ bool exponents_of(const Tensor &tensor, u32 symbols, u32 valid, u32 lane,
                                             Escapes &escapes, u64 *exponents, u32 *beyond)
{
    const u32 escaped = bytes_from(symbols, tensor.limit) & valid;
    const u32 inside_window = symbols >> tensor.top_bits & (0xffu >> tensor.top_bits) * 0x01010101u & ~escaped;
    const u8 *from = nullptr;
    u64 found;
    if constexpr (BYTES == 8) {
        found = 0;
        for (u32 i = 0; i < 4; i++)
            found |= (u64)((inside_window >> 8 * i & 0xff) + tensor.base) << 16 * i;
    } else {
        found = inside_window + tensor.base * 0x01010101u;
    }
    if (__any_sync(ALL_LANES, escaped != 0)) {
        if (!escapes.take(__popc(escaped) / 8, lane, BYTES == 8 ? 2 : 1, &from))
            return false;
        for (u32 i = 0; i < 4; i++) {
            if (!(escaped >> 8 * i & 1))
                continue;
            const u32 exponent = BYTES == 8 ? from[0] | from[1] << 8 : from[0];
            from += BYTES == 8 ? 2 : 1;
            *beyond |= exponent >> tensor.exponent_bits;
            if constexpr (BYTES == 8)
                found = (found & ~(0xffffull << 16 * i)) | (u64)exponent << 16 * i;
            else
                found = (found & ~(0xffull << 8 * i)) | (u64)exponent << 8 * i;
        }
    }
    *exponents = found;
    return true;
}

/* What words take their symbols from: a segment of the entropy coder, or values as they are. */
struct Symbols {
    Reader reader;
    bool is_coded;

    /* False where tables are needed but cannot be used. */
    template <class Tables>
    __device__ bool open(const Chunk &chunk, const Tables &tables, bool has_tables, u32 lane,
                         const Buffers &buffers)
    {
        is_coded = chunk.symbol.kind == CODED;
        if (!is_coded)
            return true;
        reader.open(buffers.coded + chunk.symbol.offset, chunk.symbol.length, lane);
        return has_tables && is_usable(tables);
    }

    template <class Tables>
    __device__ __forceinline__ u32 four(const Chunk &chunk, const Tables &tables, u32 classes, u32 at, u32 lane,
                                        const Buffers &buffers)
    {
        if (is_coded)
            return four_coded(tables, classes, (1u << lane) - 1, reader);
        return at < chunk.count ? four_values(chunk.symbol, at, buffers) : 0;
    }

    __device__ __forceinline__ bool are_short() const { return is_coded && reader.is_short; }
    __device__ __forceinline__ bool end_well() const { return !is_coded || reader.ends_well(); }
};

/* Bytes of 0xff for the words, of four, that a chunk has. */
__device__ __forceinline__ u32 valid_of(u32 at, u32 count)
{
    return at + 4 <= count ? 0xffffffffu : at < count ? (1u << 8 * (count - at)) - 1 : 0;
}

__device__ bool parts_are_sound(const Chunk &chunk, const Tensor &tensor, const Buffers &buffers)
{
    bool sound = tensor.parts <= MOST_PARTS;
    for (u32 k = 0; sound && k < tensor.parts; k++)
        sound = chunk.parts[k].kind != CODED && is_sound(chunk.parts[k], chunk.count, buffers);
    return sound;
}

template <u32 BYTES, class Tables>
__device__ u32 decode_words(const Chunk &chunk, const Tensor &tensor, const Tables &tables, bool has_tables,
                            const Buffers &buffers)
{
    const u32 lane = threadIdx.x % WARP, count = chunk.count, size = BYTES == 8 ? 2 : 1;
    if (!is_sound(chunk.symbol, count, buffers) || !parts_are_sound(chunk, tensor, buffers) ||
        chunk.escape.offset % 8 != 0 || chunk.escape.length % size != 0 || chunk.out % 16 != 0 ||
        !inside(chunk.escape.offset, chunk.escape.length, buffers.coded_bytes) ||
        !inside(chunk.out, (u64)count * BYTES, buffers.out_bytes))
        return BAD_SEGMENT;
    if (chunk.escape.length && tensor.limit >> tensor.top_bits == 1u << tensor.exponent_bits)
        return BAD_ESCAPES; /* the window holds every exponent */
    Symbols source;
    Classifier classifier;
    if (!source.open(chunk, tables, has_tables, lane, buffers) ||
        (tensor.classes && !classifier.open(chunk, tensor, lane, buffers)))
        return BAD_TABLE;
    Escapes escapes = {buffers.coded + chunk.escape.offset, chunk.escape.length / size};
    u8 *out = buffers.out + chunk.out;
    u32 beyond = 0;
    for (u32 group = 0; group < count; group += GROUP) {
        const u32 at = group + 4 * lane, valid = valid_of(at, count);
        u32 classes = 0;
        u64 exponents;
        if (tensor.classes) {
            classes = classifier.four() & valid;
            classifier.advance(GROUP);
        }
        const u32 symbols = source.four(chunk, tables, classes, at, lane, buffers);
        if (source.are_short())
            return BAD_STATES;
        if (!exponents_of<BYTES>(tensor, symbols, valid, lane, escapes, &exponents, &beyond))
            return BAD_ESCAPES;
        if (valid)
            join_four<BYTES>(tensor, chunk, buffers, at, count - at, symbols, exponents, out + (u64)at * BYTES);
    }
    if (!source.end_well())
        return BAD_STATES;
    if (escapes.left)
        return BAD_ESCAPES;
    return __any_sync(ALL_LANES, beyond != 0) ? BAD_VALUE : DONE;
}

template <u32 BYTES> struct Words {
    template <class Tables>
    __device__ u32 operator()(const Chunk &chunk, const Tensor &tensor, const Tables &tables, bool has_tables,
                              const Buffers &buffers) const
    {
        return decode_words<BYTES>(chunk, tensor, tables, has_tables, buffers);
    }
};

/* A team of warps, a chunk each, that share tables in shared memory. Teams, the chunks that they name and
 * the tensors that those name are made by the host: only what is said about bytes can be wrong. */
template <class Decode, class Tables>
__device__ void decode_team(const Team *teams, const Chunk *chunks, const Tensor *tensors,
                            const Buffers &buffers, Tables &tables)
{
    const Team team = teams[blockIdx.x];
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool has_tables =
        team.tables && team.tables <= MOST_CLASSES && inside(team.table, team.tables, buffers.tables);
    if (has_tables)
        tables.build(buffers.frequencies + (u64)team.table * ALPHABET, team.tables);
    if (warp >= team.number)
        return;
    const Chunk &chunk = chunks[team.first + warp];
    if (chunk.number >= buffers.statuses)
        return;
    const u32 status = Decode()(chunk, tensors[chunk.tensor], tables, has_tables, buffers);
    if (lane == 0 && status != DONE)
        atomicMax(&buffers.status[chunk.number], status);
}

#define DECODER(NAME, DECODE, TABLES)                                                                \
    extern "C" __global__ void __launch_bounds__(TEAM * WARP)                                        \
    NAME(const Team *teams, const Chunk *chunks, const Tensor *tensors, BUFFERS)                     \
    {                                                                                                \
        __shared__ TABLES shared_tables;                                                             \
        const Buffers buffers = THE_BUFFERS;                                                         \
        decode_team<DECODE>(teams, chunks, tensors, buffers, shared_tables);                         \
    }
DECODER(decode_words_1, Words<1>, SlotTable)
DECODER(decode_words_2, Words<2>, SlotTable)
DECODER(decode_words_4, Words<4>, SlotTable)
DECODER(decode_words_8, Words<8>, SlotTable)
DECODER(decode_classes_1, Words<1>, ClassTables)
DECODER(decode_classes_2, Words<2>, ClassTables)
DECODER(decode_classes_4, Words<4>, ClassTables)
DECODER(decode_classes_8, Words<8>, ClassTables)
