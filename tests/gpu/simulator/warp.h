// Warp collectives. The last lane of the mask to arrive computes the results of all of them.
//
// Groups of lanes with disjoint masks may be on their way at the same time. A mask may name lanes
// that the block does not have, as its size need not be a multiple of 32, but no lane that exited.
#pragma once

#include "machine.h"

#include <type_traits>

namespace cuda_on_cpu {

template <class T>
inline std::uint64_t to_bits(T value) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
inline T from_bits(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Waits for all lanes of the mask. combine(lanes, mask) reads their operands and sets the results.
template <class Combine>
[[gnu::noinline]] std::uint64_t meet_warp(const char* operation, unsigned mask, std::uint64_t operand,
                               unsigned source_lane, const Site& site, Combine combine) {
    Thread& self = *machine.current;
    Warp& warp = machine.warps[self.warp];
    Thread* lanes = lanes_of(self.warp);
    if (!(mask >> self.lane & 1))
        fail(site, "%s: mask 0x%08x does not name the calling lane %u", operation, mask, self.lane);
    mask &= warp.present;
    if (mask & warp.exited)
        fail(site, "%s: mask 0x%08x names lane %u, which has exited", operation, mask,
             unsigned(std::countr_zero(mask & warp.exited)));

    Group* group = warp.groups;
    Group* const end = warp.groups + warp.group_count;
    while (group < end && group->mask != mask) group++;
    if (group == end) {
        *group = {mask, 0};
        warp.group_count++;
    } else if (const Thread& first = lanes[std::countr_zero(group->arrived)];
               !same_operation(first, operation, site)) {
        fail(site, "lanes of mask 0x%08x diverge: this one is at %s, lane %u at %s in line %u", mask,
             operation, first.lane, first.operation, unsigned(first.site.line()));
    }
    self.operation = operation;
    self.site = site;
    self.mask = mask;
    self.operand = operand;
    self.source_lane = source_lane;
    group->arrived |= 1u << self.lane;
    if (group->arrived == mask) {
        *group = warp.groups[--warp.group_count];
        combine(lanes, mask);
        for_each_lane(mask, [&](unsigned i) { make_ready(lanes[i]); });
    } else {
        make_unready(self, State::in_warp);
    }
    run_another();
    return self.result;
}

// step(result, operand) over the lanes, from the first one's operand: the same for all.
template <class T, class Step>
inline T reduce(const char* operation, unsigned mask, T value, const Site& site, Step step) {
    const auto combine = [step](Thread* lanes, unsigned all) {
        T result = from_bits<T>(lanes[std::countr_zero(all)].operand);
        for_each_lane(all & (all - 1),
                      [&](unsigned i) { result = step(result, from_bits<T>(lanes[i].operand)); });
        for_each_lane(all, [&](unsigned i) { lanes[i].result = to_bits(result); });
    };
    return from_bits<T>(meet_warp(operation, mask, to_bits(value), 0, site, combine));
}

// The value of another lane, which the mask must name.
template <class T>
inline T shuffle(const char* operation, unsigned mask, T value, unsigned source, const Site& site) {
    const auto combine = [&](Thread* lanes, unsigned all) {
        for_each_lane(all, [&](unsigned i) {
            const unsigned from = lanes[i].source_lane;
            if (!(all >> from & 1))
                fail(site, "%s: lane %u reads lane %u, which mask 0x%08x does not name", operation,
                     i, from, all);
            lanes[i].result = lanes[from].operand;
        });
    };
    return from_bits<T>(meet_warp(operation, mask, to_bits(value), source, site, combine));
}

// The lanes of the segment of `width` lanes that the current thread is in.
struct Segment {
    unsigned lane, first, last;
    Segment(const char* operation, int width, const Site& site) : lane(machine.current->lane) {
        if (width <= 0 || width > 32 || !std::has_single_bit(unsigned(width)))
            fail(site, "%s: width %d is no power of two up to 32", operation, width);
        first = lane & ~unsigned(width - 1);
        last = first | unsigned(width - 1);
    }
};

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_SITE cuda_on_cpu::Site site = cuda_on_cpu::Site::current()

inline void __syncwarp(unsigned mask = 0xffffffffu, CUDA_ON_CPU_SITE) {
    cuda_on_cpu::meet_warp("__syncwarp", mask, 0, 0, site, [](cuda_on_cpu::Thread*, unsigned) {});
}

// ---- Votes

inline unsigned __ballot_sync(unsigned mask, int predicate, CUDA_ON_CPU_SITE) {
    const unsigned vote = unsigned(predicate != 0) << cuda_on_cpu::machine.current->lane;
    return cuda_on_cpu::reduce("__ballot_sync", mask, vote, site,
                               [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int predicate, CUDA_ON_CPU_SITE) {
    return cuda_on_cpu::reduce("__any_sync", mask, int(predicate != 0), site,
                               [](int a, int b) { return a | b; });
}
inline int __all_sync(unsigned mask, int predicate, CUDA_ON_CPU_SITE) {
    return cuda_on_cpu::reduce("__all_sync", mask, int(predicate != 0), site,
                               [](int a, int b) { return a & b; });
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, CUDA_ON_CPU_SITE) {
    using cuda_on_cpu::Thread;
    const auto combine = [](Thread* lanes, unsigned all) {
        cuda_on_cpu::for_each_lane(all, [&](unsigned i) {
            unsigned same = 0;
            cuda_on_cpu::for_each_lane(all, [&](unsigned j) {
                if (lanes[j].operand == lanes[i].operand) same |= 1u << j;
            });
            lanes[i].result = same;
        });
    };
    return unsigned(cuda_on_cpu::meet_warp("__match_any_sync", mask, cuda_on_cpu::to_bits(value), 0,
                                           site, combine));
}

// ---- Shuffles

template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, CUDA_ON_CPU_SITE) {
    const cuda_on_cpu::Segment segment("__shfl_sync", width, site);
    const unsigned source = segment.first | (unsigned(lane) & unsigned(width - 1));
    return cuda_on_cpu::shuffle("__shfl_sync", mask, value, source, site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDA_ON_CPU_SITE) {
    const cuda_on_cpu::Segment segment("__shfl_up_sync", width, site);
    const bool inside = delta <= segment.lane - segment.first;
    const unsigned source = inside ? segment.lane - delta : segment.lane;
    return cuda_on_cpu::shuffle("__shfl_up_sync", mask, value, source, site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          CUDA_ON_CPU_SITE) {
    const cuda_on_cpu::Segment segment("__shfl_down_sync", width, site);
    const bool inside = delta <= segment.last - segment.lane;
    const unsigned source = inside ? segment.lane + delta : segment.lane;
    return cuda_on_cpu::shuffle("__shfl_down_sync", mask, value, source, site);
}
// A lane may read from segments before its own, not from those behind.
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, CUDA_ON_CPU_SITE) {
    const cuda_on_cpu::Segment segment("__shfl_xor_sync", width, site);
    const unsigned other = segment.lane ^ unsigned(lane_mask);
    const unsigned source = other <= segment.last ? other : segment.lane;
    return cuda_on_cpu::shuffle("__shfl_xor_sync", mask, value, source, site);
}

// ---- Reductions

#define CUDA_ON_CPU_REDUCE(name, type, expression)                              \
    inline type name(unsigned mask, type value, CUDA_ON_CPU_SITE) {             \
        const auto step = [](type a, type b) { return type(expression); };      \
        return cuda_on_cpu::reduce(#name, mask, value, site, step);         \
    }

CUDA_ON_CPU_REDUCE(__reduce_add_sync, unsigned, a + b)
CUDA_ON_CPU_REDUCE(__reduce_add_sync, int, unsigned(a) + unsigned(b))
CUDA_ON_CPU_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
CUDA_ON_CPU_REDUCE(__reduce_min_sync, int, a < b ? a : b)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, int, a > b ? a : b)
CUDA_ON_CPU_REDUCE(__reduce_and_sync, unsigned, a & b)
CUDA_ON_CPU_REDUCE(__reduce_or_sync, unsigned, a | b)
CUDA_ON_CPU_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef CUDA_ON_CPU_REDUCE
