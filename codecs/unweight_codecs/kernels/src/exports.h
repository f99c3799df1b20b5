/* What the library exports. The binding is ../native/: library.py repeats these declarations. */
#ifndef UNWEIGHT_EXPORTS_H
#define UNWEIGHT_EXPORTS_H

#include "unweight.h"

#define UW_EXPORT __attribute__((visibility("default")))

/* Fills in the numbers that the binding has to agree on (abi.c), at most `room` of them; returns how many there are. */
UW_EXPORT uint32_t uw_abi(uint32_t *facts, uint32_t room);
/* The kernels of a name: avx512, avx2 or portable. NULL when this processor does not run them. */
UW_EXPORT const uw_kernel *uw_find_kernel(const char *name);

UW_EXPORT int32_t uw_histogram(const uint8_t *words, uint64_t count, uint32_t word_bytes, uint32_t shift,
                               uint32_t bits, uint64_t stretch, uint32_t *scratch, uint32_t *bins);

UW_EXPORT void uw_normalise(const int64_t *counts, uint32_t rows, uint16_t *tables);
UW_EXPORT int64_t uw_lloyd(const int64_t *counts, uint32_t rows, const int64_t *lengths, uint32_t *number,
                           uint8_t *choice, uint8_t *before, uint16_t *tables);
UW_EXPORT int64_t uw_serialise(const uint16_t *tables, uint32_t count, uint8_t *out);
UW_EXPORT int64_t uw_parse(const uint8_t *data, uint64_t length, uint32_t count, uint16_t *tables);

UW_EXPORT int64_t uw_rans_encode(const uw_kernel *kernel, const uint8_t *symbols, uw_segment *segments, uint32_t count,
                                 const uint16_t *frequencies, uint32_t tables, const uint8_t *context_of,
                                 uint32_t context_shift, uint32_t *room, uint64_t room_words, uint8_t *out);
UW_EXPORT int32_t uw_rans_decode(const uw_kernel *kernel, const uint8_t *coded, uint64_t coded_length,
                                 const uw_segment *segments, uint32_t count, const uint16_t *frequencies,
                                 uint32_t tables, const uint8_t *context_of, uint64_t context_count,
                                 uint32_t context_shift, uint32_t *room, uint64_t room_words, uint8_t *out,
                                 uint64_t out_length);
UW_EXPORT int32_t uw_decode16(const uw_kernel *kernel, const uint8_t *coded, uint64_t coded_length,
                              const uw_chunk16 *chunks, uint32_t count, const uint16_t *frequencies, uint32_t tables,
                              const uint8_t *context_of, uint64_t context_count, uint32_t *room, uint64_t room_words,
                              const uw_split_spec *spec, uint8_t *words, uint64_t word_count);
UW_EXPORT int32_t uw_decode_levels(const uw_kernel *kernel, const uint8_t *coded, uint64_t coded_length,
                                   const uw_level_chunk *chunks, uint32_t count, const uint16_t *frequencies,
                                   uint32_t tables, uint32_t *room, uint64_t room_words, const uw_levels *levels,
                                   const float *prediction, uint8_t *symbols, uint64_t symbol_room, uint8_t *words,
                                   uint64_t word_count);

UW_EXPORT void uw_split(const uw_kernel *kernel, const uint8_t *words, uint64_t count, const uw_split_spec *spec,
                        uint8_t *symbols, uint8_t *planes, uint64_t stride, uint8_t *top);
UW_EXPORT int64_t uw_split16(const uw_kernel *kernel, const uint8_t *words, uint64_t count, uint64_t chunk,
                             const uw_split_spec *spec, uint8_t *symbols, uint8_t *low, uint8_t *top,
                             uint8_t *escapes, uint64_t *escape_counts);
UW_EXPORT void uw_join(const uw_kernel *kernel, const uint8_t *symbols, const uint8_t *const planes[8],
                       const uint8_t *top, uint64_t count, const uw_split_spec *spec, uint8_t *words);
UW_EXPORT uint64_t uw_collect_escapes(const uint8_t *words, const uint8_t *symbols, uint64_t count,
                                      const uw_split_spec *spec, uint8_t *out);
UW_EXPORT int32_t uw_patch(const uint8_t *symbols, uint64_t count, const uw_split_spec *spec, const uint8_t *escapes,
                           uint64_t escape_count, uint8_t *words);

UW_EXPORT void uw_pack_bits(const uw_kernel *kernel, const uint8_t *values, uint64_t count, uint32_t width,
                            uint8_t *out);
UW_EXPORT int32_t uw_unpack_bits(const uw_kernel *kernel, const uint8_t *packed, uint64_t packed_length,
                                 uint64_t count, uint32_t width, uint8_t *out);
UW_EXPORT void uw_take_field(const uw_kernel *kernel, const uint8_t *blocks, uint64_t count, uint64_t stride,
                             uint32_t first, uint32_t size, uint32_t width, uint8_t *out);
UW_EXPORT void uw_put_field(const uw_kernel *kernel, const uint8_t *values, uint64_t count, uint64_t stride,
                            uint32_t first, uint32_t size, uint32_t width, uint8_t *blocks);
UW_EXPORT void uw_zero_points(const uint8_t *const halves[4], uint64_t count, double factor, double below,
                              uint32_t contexts, uint8_t *out);

UW_EXPORT void uw_quantise(const uw_kernel *kernel, const uint8_t *words, uint64_t count, const uint8_t *escaped,
                           const uw_levels *levels, float step, const float *prediction, uint8_t *symbols,
                           uint8_t *low);
UW_EXPORT void uw_find_nearest(const uw_kernel *kernel, const uint8_t *words, uint64_t count, const uint8_t *escaped,
                               const uw_levels *levels, float step, const float *prediction, const float *middles,
                               uint8_t *symbols);
UW_EXPORT int32_t uw_dequantise(const uw_kernel *kernel, const uint8_t *symbols, const uint8_t *low, uint64_t count,
                                const uw_levels *levels, float step, const float *prediction, const uint8_t *escapes,
                                uint64_t escape_count, uint8_t *words);
UW_EXPORT void uw_predict(const uw_kernel *kernel, const uw_factors *factors, uint64_t first, uint64_t count,
                          float *out);
UW_EXPORT int32_t uw_squared_error(const uw_kernel *kernel, const uint8_t *original, const uint8_t *decoded,
                                   uint64_t count, uint32_t dtype, double sums[3]);

#endif
