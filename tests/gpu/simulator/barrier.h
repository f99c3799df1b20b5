// Barriers of a block. All threads that have not exited must come to the same one.
#pragma once

#include "machine.h"

namespace cuda_on_cpu {

inline void release_barrier() {
    machine.barrier_result = machine.barrier_votes;
    machine.barrier_votes = machine.at_barrier = 0;
    const unsigned threads = machine.block.x * machine.block.y * machine.block.z;
    for (unsigned i = 0; i < threads; i++)
        if (machine.threads[i].state == State::at_barrier) make_ready(machine.threads[i]);
}

// Returns how many threads came with a vote.
[[gnu::noinline]] inline unsigned meet_block(const char* operation, bool vote, const Site& site) {
    Thread& self = *machine.current;
    if (!machine.at_barrier) {
        machine.barrier_first = &self;
    } else if (const Thread& first = *machine.barrier_first;
               !same_operation(first, operation, site)) {
        fail(site, "divergent barrier: this thread is at %s, others wait at %s in line %u",
             operation, first.operation, unsigned(first.site.line()));
    }
    self.operation = operation;
    self.site = site;
    self.mask = 0;
    machine.at_barrier++;
    machine.barrier_votes += vote;
    make_unready(self, State::at_barrier);
    if (machine.at_barrier == machine.live) release_barrier();
    run_another();
    return machine.barrier_result;
}

// Ends the current thread; never comes back.
inline void exit_thread() {
    Thread& self = *machine.current;
    Warp& warp = machine.warps[self.warp];
    for (unsigned i = 0; i < warp.group_count; i++)
        if (warp.groups[i].mask >> self.lane & 1) {
            const Thread& other = lanes_of(self.warp)[std::countr_zero(warp.groups[i].arrived)];
            fail(other.site, "lane %u exits while %s(0x%08x) waits for it", self.lane,
                 other.operation, other.mask);
        }
    warp.exited |= 1u << self.lane;
    machine.live--;
    make_unready(self, State::exited);
    if (machine.live && machine.at_barrier == machine.live) release_barrier();
    run_another();
}

}  // namespace cuda_on_cpu

inline void __syncthreads(cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    cuda_on_cpu::meet_block("__syncthreads", false, site);
}
inline int __syncthreads_count(int predicate,
                               cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return int(cuda_on_cpu::meet_block("__syncthreads_count", predicate != 0, site));
}
inline int __syncthreads_or(int predicate, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return cuda_on_cpu::meet_block("__syncthreads_or", predicate != 0, site) != 0;
}
inline int __syncthreads_and(int predicate, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return cuda_on_cpu::meet_block("__syncthreads_and", predicate == 0, site) == 0;
}

// There is no time that could pass.
inline void __nanosleep(unsigned) {}
