/* BF16 words straight to a palette (../palette/format.py), for matrices whose rows are multiples of
 * ROW_WORDS: a word's number is then its place in the planes. The palette has the base of the window, so
 * its escapes are those of the payload, and the directory says how many lie before each chunk. */

/* Where a lane's words are in the matrix. */
struct Place {
    u64 row, column, columns;

    __device__ void advance(u32 words)
    {
        column += words;
        while (column >= columns) {
            column -= columns;
            row++;
        }
    }
};

/* The sign and mantissa of four words, a byte each, from their symbols and what those leave. */
__device__ __forceinline__ u32 signs_and_mantissas(const Tensor &tensor, u32 symbols, u32 raw)
{
    const u32 each = 0x01010101u, low_bits = 7 - tensor.top_bits;
    return (raw >> low_bits & each) << 7 | (symbols & ((1u << tensor.top_bits) - 1) * each) << low_bits |
           (raw & ((1u << low_bits) - 1) * each);
}

struct Transcode {
    template <class Tables>
    __device__ u32 operator()(const Chunk &chunk, const Tensor &tensor, const Tables &tables, bool has_tables,
                              const Buffers &buffers) const
    {
        const u32 lane = threadIdx.x % WARP, count = chunk.count;
        const u64 words = tensor.words, rows = tensor.columns ? words / tensor.columns : 0;
        if (!is_sound(chunk.symbol, count, buffers) || !parts_are_sound(chunk, tensor, buffers) ||
            !inside(chunk.escape.offset, chunk.escape.length, buffers.coded_bytes) || !rows ||
            tensor.columns % 16 != 0 || chunk.first % GROUP != 0 || count % 16 != 0 ||
            !inside(chunk.first, count, words) || !inside(tensor.sm, words, buffers.out_bytes) ||
            !inside(tensor.nibbles, words / 2, buffers.out_bytes) ||
            !inside(tensor.row_ptr, 4 * (rows + 1), buffers.out_bytes) ||
            !inside(tensor.escapes, 4ull * tensor.escape_number, buffers.out_bytes) ||
            !inside(chunk.out, chunk.escape.length, tensor.escape_number))
            return BAD_SEGMENT;
        Symbols source;
        ContextReader context_reader;
        if (!source.open(chunk, tables, has_tables, lane, buffers) ||
            (tensor.contexts && !context_reader.open(chunk, tensor, lane, buffers)))
            return BAD_TABLE;
        const u8 *first_escape = buffers.coded + chunk.escape.offset;
        Escapes escapes = {first_escape, chunk.escape.length};
        Place place = {(chunk.first + 4 * lane) / tensor.columns, (chunk.first + 4 * lane) % tensor.columns,
                       tensor.columns};
        u32 *row_ptr = (u32 *)(buffers.out + tensor.row_ptr), *list = (u32 *)(buffers.out + tensor.escapes);
        u8 *sm = buffers.out + tensor.sm + chunk.first;
        u32 *nibbles = (u32 *)(buffers.out + tensor.nibbles) + chunk.first / 8;
        for (u32 group = 0; group < count; group += GROUP, place.advance(GROUP)) {
            const u32 at = group + 4 * lane, valid = valid_of(at, count);
            u32 contexts = 0;
            if (tensor.contexts) {
                contexts = context_reader.four() & valid;
                context_reader.advance(GROUP);
            }
            const u32 symbols = source.four(chunk, tables, contexts, at, lane, buffers);
            if (source.are_short())
                return BAD_STATES;
            const u32 escaped = bytes_from(symbols, tensor.limit) & valid;
            const u8 *from = escapes.next;
            if (__any_sync(ALL_LANES, escaped != 0) && !escapes.take(__popc(escaped) / 8, lane, 1, &from))
                return BAD_ESCAPES;
            const u32 next = (u32)chunk.out + (u32)(from - first_escape);
            const u32 raw = valid ? four_values(chunk.parts[0], at, buffers) : 0;
            const u32 bytes = signs_and_mantissas(tensor, symbols, raw);
            const u32 exponents = symbols >> tensor.top_bits & (0xffu >> tensor.top_bits) * 0x01010101u;
            const u32 in_window = valid & ~escaped;
            const u32 fields = four_nibbles(((exponents & in_window) + 0x01010101u) & in_window) << 8 * (lane % 2);
            const u32 both = fields | __shfl_xor_sync(ALL_LANES, fields, 1);
            if (!valid)
                continue;
            if (place.column == 0)
                row_ptr[place.row] = next;
            *(u32 *)(sm + at) = bytes & ~escaped;
            if (lane % 2 == 0)
                nibbles[at / 8] = both;
            u32 number = next;
            for (u32 i = 0; i < 4; i++) {
                if (!(escaped >> 8 * i & 1))
                    continue;
                const u32 byte = bytes >> 8 * i & 0xff;
                list[number++] = (u32)(place.column + i) | (byte & 0x80) << 24 | (u32)*from++ << 23 |
                                 (byte & 0x7f) << 16;
            }
        }
        if (!source.end_well())
            return BAD_STATES;
        if (escapes.left)
            return BAD_ESCAPES;
        if (lane == 0 && chunk.first + count == words)
            row_ptr[rows] = (u32)chunk.out + chunk.escape.length;
        return DONE;
    }
};

DECODER(decode_palette, Transcode, SlotTable)
DECODER(decode_palette_contexts, Transcode, ContextTables)
