// What the test asks of a launch, and who is asked: known to the whole process that runs it.
#pragma once

#include "machine.h"

namespace cuda_on_cpu {

constexpr std::size_t GUARD_BYTES = 64 << 10;  // on both sides of a buffer; mirrored by memory.py

// One buffer of global memory. Mirrored by memory.py.
struct Buffer {
    char *pages, *pages_end;  // what may be accessed
    char *begin, *end;        // what belongs to it
    std::uint32_t argument;   // 1 for the first that it is passed as, 0: none
    std::uint32_t is_read_only;
};

// Mirrored by module.py.
struct Request {
    std::uint32_t grid[3], block[3];
    std::uint64_t shared_bytes, shared_limit, seed, processor_seconds;
    void* const* arguments;  // addresses of the parameters' values
    const Buffer* buffers;
    std::uint64_t buffer_count;
    Report* report;
};

inline const Request* request;
inline void (*kernel_body)(void* const*);
inline std::uintptr_t load_address;  // of this library

}  // namespace cuda_on_cpu
