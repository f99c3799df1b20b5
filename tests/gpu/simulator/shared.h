// Shared memory: poisoned before every block, and compared with its limits after it.
#pragma once

#include "request.h"

#include <algorithm>
#include <link.h>
#include <sys/mman.h>

namespace cuda_on_cpu {

struct Span {
    char* begin = nullptr;
    std::size_t size = 0;
};

// The only thread-local variable with a value, and so the first: linkers put those with values first.
static thread_local volatile char first_of_shared = 1;

// Where this library's thread-local variables are, all of which are `__shared__`.
inline Span static_shared_memory() {
    Span found = {const_cast<char*>(&first_of_shared), 0};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
            const auto here = reinterpret_cast<std::uintptr_t>(&machine) - info->dlpi_addr;
            bool is_this = false;
            std::size_t size = 0;
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const auto& header = info->dlpi_phdr[i];
                if (header.p_type == PT_LOAD && here - header.p_vaddr < header.p_memsz)
                    is_this = true;
                if (header.p_type == PT_TLS) size = header.p_memsz;
            }
            if (!is_this) return 0;
            load_address = info->dlpi_addr;
            static_cast<Span*>(result)->size = size;
            return 1;
        },
        &found);
    return found;
}

// Pieces of memory with guards between and around them; returns the end of the first. The next one
// ends `guard` and a piece later.
inline char* guarded_memory(std::size_t size, std::size_t guard, std::size_t pieces) {
    void* memory = mmap(nullptr, (size + guard) * pieces + guard, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool is_usable = memory != MAP_FAILED;
    char* const begin = static_cast<char*>(memory) + guard;
    for (std::size_t i = 0; is_usable && size && i < pieces; i++)
        is_usable = !mprotect(begin + i * (size + guard), size, PROT_READ | PROT_WRITE);
    if (!is_usable) fail_at(nullptr, 0, "no memory for the simulator");
    return begin + size;
}

inline std::size_t whole_pages(std::size_t size) {
    const auto page = std::size_t(sysconf(_SC_PAGESIZE));
    return (size + page - 1) / page * page;
}

constexpr std::size_t SHARED_ALIGNMENT = 16;

struct SharedMemory {
    Span fixed = static_shared_memory();
    Span dynamic;
    char* slack_end;

    SharedMemory() {
        const std::size_t size = request->shared_bytes;
        const std::size_t rounded = (size + SHARED_ALIGNMENT - 1) / SHARED_ALIGNMENT * SHARED_ALIGNMENT;
        slack_end = guarded_memory(whole_pages(rounded), GUARD_BYTES, 1);
        dynamic = {slack_end - rounded, size};
        machine.dynamic_shared = dynamic.begin;
    }

    void poison() const {
        std::memset(fixed.begin, POISON, fixed.size);
        std::memset(dynamic.begin, POISON, slack_end - dynamic.begin);
    }

    void check() const {
        const auto is_poison = [](char byte) { return byte == char(POISON); };
        if (!std::all_of(dynamic.begin + dynamic.size, slack_end, is_poison))
            fail_at(nullptr, 0, "block (%u, %u, %u) wrote behind the end of dynamic shared memory",
                    machine.block_index.x, machine.block_index.y, machine.block_index.z);
        // The variables of all kernels of a module lie together. Those of this one have been
        // written, in part at least; the report of the CUDA assembler has their exact size.
        if (fixed.size + dynamic.size <= request->shared_limit) return;
        const auto unused = std::count_if(fixed.begin, fixed.begin + fixed.size, is_poison);
        const std::size_t used = fixed.size - std::size_t(unused);
        if (used + dynamic.size > request->shared_limit)
            fail_at(nullptr, 0, "shared memory: %zu bytes static and %zu dynamic, the limit is %zu",
                    used, dynamic.size, std::size_t(request->shared_limit));
    }
};

// Stands for `extern __shared__ T name[];`, which compiler.py rewrites to `T* const name`.
struct DynamicShared {
    template <class T>
    operator T*() const {
        return reinterpret_cast<T*>(machine.dynamic_shared);
    }
};

}  // namespace cuda_on_cpu
