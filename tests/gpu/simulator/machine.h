// The state of the block that runs, the choice of the thread that goes on, and faults.
#pragma once

#include "context.h"
#include "vectors.h"

#include <bit>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <source_location>
#include <unistd.h>

namespace cuda_on_cpu {

using Site = std::source_location;

constexpr unsigned MAX_THREADS = 1024, MAX_WARPS = 32;
constexpr unsigned char POISON = 0xCD;

enum class State : unsigned char { ready, in_warp, at_barrier, exited };

struct Thread {
    Context context;
    uint3 index;
    unsigned warp, lane;
    State state;
    // What it waits at, and for a warp collective, what it brings and what it takes away.
    const char* operation;
    Site site;
    unsigned mask;
    unsigned source_lane;
    std::uint64_t operand, result;
};

// Lanes on their way to one collective.
struct Group {
    unsigned mask, arrived;
};

struct Warp {
    unsigned present, ready, exited;  // one bit per lane
    unsigned group_count;
    Group groups[32];
};

// What the process that runs a kernel tells the one that launched it.
struct Report {
    char message[1000];
    std::uint64_t instruction;  // offset in the library of one that faulted, 0: unknown
};

struct Machine {
    dim3 grid, block;
    uint3 block_index, thread_index;
    unsigned live, at_barrier;
    unsigned barrier_votes, barrier_result;
    Thread* barrier_first;  // of those at the barrier
    unsigned ready_warps;
    std::uint32_t leave_below;  // of 65,536: how often to leave a warp that has ready threads
    std::uint64_t random_state;
    Thread* current;
    Context launcher;
    char* dynamic_shared;
    Report* report;
    Warp warps[MAX_WARPS];
    Thread threads[MAX_THREADS];
};

inline Machine machine;

// Whether a thread at this operation does the same as one that waits.
inline bool same_operation(const Thread& waiting, const char* operation, const Site& site) {
    return waiting.site.line() == site.line() &&
           (waiting.operation == operation || !std::strcmp(waiting.operation, operation));
}

inline Thread* lanes_of(unsigned warp) { return machine.threads + 32 * warp; }

template <class Function>
inline void for_each_lane(unsigned mask, Function function) {
    for (; mask; mask &= mask - 1) function(unsigned(std::countr_zero(mask)));
}

// ---- Faults: the launch runs in a process of its own, so the end of it needs no cleaning up.

[[noreturn]] inline void end_with_report() {
    _exit(machine.report->message[0] ? 1 : 0);
}

inline const char* file_name(const char* path) {
    const char* slash = std::strrchr(path, '/');
    return slash ? slash + 1 : path;
}

[[noreturn, gnu::cold, gnu::noinline, gnu::format(printf, 3, 4)]] inline void fail_at(
    const char* file, unsigned line, const char* format, ...) {
    char* at = machine.report->message;
    char* end = at + sizeof machine.report->message;
    if (file) at += std::snprintf(at, end - at, "%s:%u: ", file_name(file), line);
    const uint3 &b = machine.block_index, &t = machine.thread_index;
    if (machine.current)
        at += std::snprintf(at, end - at, "block (%u, %u, %u) thread (%u, %u, %u): ", b.x, b.y, b.z,
                            t.x, t.y, t.z);
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(at, end - at, format, arguments);
    va_end(arguments);
    end_with_report();
}

template <class... Arguments>
[[noreturn]] inline void fail(const Site& site, const char* format, Arguments... arguments) {
    fail_at(site.file_name(), site.line(), format, arguments...);
}

// ---- Scheduling

inline std::uint32_t random_bits() {  // SplitMix64 (Steele, Lea and Flood 2014)
    std::uint64_t z = machine.random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return std::uint32_t(z >> 32);
}

inline unsigned random_member(unsigned set, unsigned random) {
    return (random + unsigned(std::countr_zero(std::rotr(set, int(random & 31))))) & 31;
}

inline void make_ready(Thread& thread) {
    thread.state = State::ready;
    machine.warps[thread.warp].ready |= 1u << thread.lane;
    machine.ready_warps |= 1u << thread.warp;
}

inline void make_unready(Thread& thread, State state) {
    thread.state = state;
    Warp& warp = machine.warps[thread.warp];
    warp.ready &= ~(1u << thread.lane);
    if (!warp.ready) machine.ready_warps &= ~(1u << thread.warp);
}

// Says for every place where threads wait how many do. No thread can go on.
[[noreturn]] inline void fail_deadlocked() {
    char text[800];
    int length = 0;
    bool counted[MAX_THREADS] = {};
    const unsigned threads = machine.block.x * machine.block.y * machine.block.z;
    const auto waits = [](State state) {
        return state == State::at_barrier || state == State::in_warp;
    };
    for (unsigned i = 0; i < threads; i++) {
        const Thread& first = machine.threads[i];
        if (counted[i] || !waits(first.state)) continue;
        unsigned same = 0;
        for (unsigned j = i; j < threads; j++) {
            const Thread& other = machine.threads[j];
            if (!waits(other.state) || other.mask != first.mask ||
                !same_operation(other, first.operation, first.site))
                continue;
            counted[j] = true;
            same++;
        }
        if (length < int(sizeof text) - 100) {
            length += std::snprintf(text + length, sizeof text - length, ", %u at %s", same,
                                    first.operation);
            if (first.state == State::in_warp)
                length += std::snprintf(text + length, sizeof text - length, "(0x%08x)", first.mask);
            length += std::snprintf(text + length, sizeof text - length, " in line %u",
                                    unsigned(first.site.line()));
        }
    }
    const unsigned exited = threads - machine.live;
    machine.current = nullptr;
    const uint3& b = machine.block_index;
    fail_at(nullptr, 0, "block (%u, %u, %u): deadlock: %u of %u threads have exited%s", b.x, b.y,
            b.z, exited, threads, text);
}

[[gnu::noinline]] inline void run_another() {
    if (!machine.ready_warps) {
        if (machine.live) fail_deadlocked();
        Context& last = machine.current->context;
        machine.current = nullptr;
        switch_context(last, machine.launcher);
        return;
    }
    Thread* previous = machine.current;
    const std::uint32_t random = random_bits();
    const bool stay = previous && machine.warps[previous->warp].ready &&
                      random >> 16 >= machine.leave_below;
    const unsigned warp = stay ? previous->warp : random_member(machine.ready_warps, random >> 5);
    Thread* next = lanes_of(warp) + random_member(machine.warps[warp].ready, random);
    if (next == previous) return;
    machine.current = next;
    machine.thread_index = next->index;
    switch_context(previous ? previous->context : machine.launcher, next->context);
}

inline void wait_as(State state) {
    make_unready(*machine.current, state);
    run_another();
}

}  // namespace cuda_on_cpu
