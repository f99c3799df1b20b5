// Runs a grid in a process of its own, and tells the test what went wrong in it.
//
// A forked child can do what it wants with memory: nothing that it destroys is the test's, stacks
// and states need no cleaning up after a fault, and an endless loop meets a limit of processor time.
// Buffers of global memory are shared with it; everything else is a private copy.
#pragma once

#include "barrier.h"
#include "request.h"
#include "shared.h"
#include "signals.h"

#include <cerrno>
#include <cfenv>
#include <numeric>
#include <sys/resource.h>
#include <sys/wait.h>
#include <vector>

namespace cuda_on_cpu {

constexpr std::size_t STACK_BYTES = 128 << 10;

inline void run_thread() {
    kernel_body(request->arguments);
    exit_thread();
}

inline void run_block(char* first_stack) {
    const dim3& block = machine.block;
    const unsigned count = block.x * block.y * block.z;
    machine.live = count;
    // Warps that run one after another, in long turns, or mixed: each shows other races.
    constexpr std::uint32_t leaving[] = {0, 512, 512, 65536};
    machine.leave_below = leaving[random_bits() & 3];
    for (unsigned i = 0; i < (count + 31) / 32; i++) {
        const unsigned lanes = std::min(count - 32 * i, 32u);
        machine.warps[i] = {};
        machine.warps[i].present = unsigned((std::uint64_t(1) << lanes) - 1);
    }
    for (unsigned i = 0; i < count; i++) {
        Thread& thread = machine.threads[i];
        thread.index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
        thread.warp = i / 32;
        thread.lane = i % 32;
        // At different offsets, else all stacks compete for the same lines of the cache.
        char* const top = first_stack + i * (STACK_BYTES + GUARD_BYTES) - i * 320 % 4096;
        prepare(thread.context, top, STACK_BYTES - 4096, run_thread);
        make_ready(thread);
    }
    run_another();
}

inline void run_grid() {
    const dim3& grid = machine.grid;
    const SharedMemory shared;
    const unsigned threads = machine.block.x * machine.block.y * machine.block.z;
    char* const first_stack = guarded_memory(STACK_BYTES, GUARD_BYTES, threads);
    std::vector<std::uint64_t> order(std::uint64_t(grid.x) * grid.y * grid.z);
    std::iota(order.begin(), order.end(), 0);
    for (std::uint64_t left = order.size(); left > 1; left--)
        std::swap(order[left - 1], order[random_bits() % left]);
    for (const std::uint64_t i : order) {
        machine.block_index = {unsigned(i % grid.x), unsigned(i / grid.x % grid.y),
                               unsigned(i / grid.x / grid.y)};
        shared.poison();
        run_block(first_stack);
        shared.check();
    }
}

[[noreturn]] inline void run_child() {
    machine.grid = {request->grid[0], request->grid[1], request->grid[2]};
    machine.block = {request->block[0], request->block[1], request->block[2]};
    machine.random_state = request->seed;
    machine.report = request->report;
    catch_signals();
    std::fesetenv(FE_DFL_ENV);  // libraries of the test may flush subnormals
    const rlimit limit = {request->processor_seconds, request->processor_seconds + 5};
    setrlimit(RLIMIT_CPU, &limit);
    for (std::uint64_t i = 0; i < request->buffer_count; i++) {
        const Buffer& buffer = request->buffers[i];
        if (buffer.is_read_only)
            mprotect(buffer.pages, std::size_t(buffer.pages_end - buffer.pages), PROT_READ);
    }
    run_grid();
    end_with_report();
}

// Returns the status of the child, as of waitpid, or -1 when there is none.
inline int launch(const Request* wanted, void (*body)(void* const*)) {
    request = wanted;
    kernel_body = body;
    const pid_t child = fork();
    if (child == 0) run_child();
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

}  // namespace cuda_on_cpu
