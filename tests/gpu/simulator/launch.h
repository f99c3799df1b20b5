// Runs a grid in a process of its own, and tells the test what went wrong in it.
//
// A forked child can do what it wants with memory: nothing that it destroys is the test's, stacks
// and states need no cleaning up after a fault, and an endless loop meets a limit of processor time.
// Buffers of global memory are shared with it; everything else is a private copy.
#pragma once

#include "barrier.h"
#include "machine.h"

#include <algorithm>
#include <cerrno>
#include <cfenv>
#include <csignal>
#include <link.h>
#include <numeric>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

namespace cuda_on_cpu {

constexpr std::size_t STACK_BYTES = 128 << 10, GUARD_BYTES = 64 << 10;

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
inline std::uintptr_t load_address;

// ---- Faults that the processor notices

inline void describe(char* text, std::size_t size, const char* address) {
    for (std::uint64_t i = 0; i < request->buffer_count; i++) {
        const Buffer& buffer = request->buffers[i];
        if (address < buffer.pages - GUARD_BYTES || address >= buffer.pages_end + GUARD_BYTES)
            continue;
        char name[40] = "a buffer";
        if (buffer.argument) std::snprintf(name, sizeof name, "argument %u", buffer.argument);
        const auto bytes = static_cast<long long>(buffer.end - buffer.begin);
        if (address >= buffer.end)
            std::snprintf(text, size, "%lld bytes behind the end of %s, which has %lld bytes",
                          static_cast<long long>(address - buffer.end), name, bytes);
        else if (address < buffer.begin)
            std::snprintf(text, size, "%lld bytes before the start of %s, which has %lld bytes",
                          static_cast<long long>(buffer.begin - address), name, bytes);
        else
            std::snprintf(text, size, "byte %lld of %s, which is read only",
                          static_cast<long long>(address - buffer.begin), name);
        return;
    }
    const char* shared = machine.dynamic_shared;
    if (address >= shared && address < shared + request->shared_bytes + GUARD_BYTES)
        std::snprintf(text, size, "%lld bytes behind the end of dynamic shared memory",
                      static_cast<long long>(address - shared - request->shared_bytes));
    else
        std::snprintf(text, size, "address %p, which is in no buffer",
                      static_cast<const void*>(address));
}

inline void on_signal(int number, siginfo_t* info, void* context) {
    const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
    char where[200] = "";
    const char* what = "";
#if defined(__x86_64__)
    const auto instruction = std::uintptr_t(registers.gregs[REG_RIP]);
    const char* access = registers.gregs[REG_ERR] & 2 ? "write" : "read";
#elif defined(__aarch64__)
    const auto instruction = std::uintptr_t(registers.pc);
    const char* access = "access";
#else
    const std::uintptr_t instruction = 0;
    const char* access = "access";
#endif
    machine.report->instruction = instruction - load_address;
    switch (number) {
        case SIGSEGV:
        case SIGBUS:
            describe(where, sizeof where, static_cast<char*>(info->si_addr));
            what = "invalid ";
            break;
        case SIGXCPU:
            access = "still running when its processor time was over: an endless loop?";
            break;
        default:
            access = strsignal(number);
    }
    fail_at(nullptr, 0, "%s%s%s%s", what, access, where[0] ? ", " : "", where);
}

inline void catch_signals() {
    stack_t stack = {};  // of its own, as that of a thread may have overflowed
    stack.ss_size = 64 << 10;
    stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGXCPU})
        sigaction(number, &action, nullptr);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
}

// ---- Shared memory

struct Span {
    char* begin = nullptr;
    std::size_t size = 0;
};

static thread_local volatile char shared_anchor;  // so that every library has such variables

// Where this library's thread-local variables are, all of which are `__shared__`.
inline Span static_shared_memory() {
    shared_anchor = 0;  // the loader makes them when first used
    Span found;
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
            *static_cast<Span*>(result) = {static_cast<char*>(info->dlpi_tls_data), size};
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

// Stands for `extern __shared__ T name[];`, which module.py rewrites to `T* const name`.
struct DynamicShared {
    template <class T>
    operator T*() const {
        return reinterpret_cast<T*>(machine.dynamic_shared);
    }
};

// ---- Blocks

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

// ---- What a library offers to Python

template <class T>
inline std::string describe_type() {
    if constexpr (std::is_class_v<T>) return "s" + std::to_string(sizeof(T));
    else if constexpr (std::is_floating_point_v<T>) return "f" + std::to_string(sizeof(T));
    else if constexpr (std::is_signed_v<T>) return "i" + std::to_string(sizeof(T));
    else return "u" + std::to_string(sizeof(T));
}

// `*` and for constant data `c`, then kind and size, as the array interface of NumPy has them.
template <class T>
inline std::string describe_parameter() {
    if constexpr (!std::is_pointer_v<T>) {
        return describe_type<T>();
    } else {
        using Element = std::remove_pointer_t<T>;
        const std::string pointer = std::is_const_v<Element> ? "*c" : "*";
        if constexpr (std::is_void_v<Element>) return pointer + "v0";
        else return pointer + describe_type<std::remove_cv_t<Element>>();
    }
}

template <auto kernel>
struct Kernel;

template <class... Parameters, void (*kernel)(Parameters...)>
struct Kernel<kernel> {
    static void call(void* const* arguments) {
        call(arguments, std::index_sequence_for<Parameters...>());
    }
    template <std::size_t... I>
    static void call(void* const* arguments, std::index_sequence<I...>) {
        kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[I])...);
    }
    static const char* signature() {
        static const std::string text = ((describe_parameter<Parameters>() + " ") + ... + "");
        return text.c_str();
    }
};

inline unsigned first_of(unsigned first = MAX_THREADS, ...) { return first; }

}  // namespace cuda_on_cpu

// The bounds are those of __launch_bounds__, if any.
#define CUDA_ON_CPU_KERNEL(name, ...)                                                              \
    extern "C" __attribute__((visibility("default"))) int name##__launch(                          \
        const cuda_on_cpu::Request* request) {                                                     \
        return cuda_on_cpu::launch(request, cuda_on_cpu::Kernel<&name>::call);                     \
    }                                                                                              \
    extern "C" __attribute__((visibility("default"))) const char* name##__signature() {            \
        return cuda_on_cpu::Kernel<&name>::signature();                                            \
    }                                                                                              \
    extern "C" __attribute__((visibility("default"))) unsigned name##__most_threads() {            \
        return cuda_on_cpu::first_of(__VA_ARGS__);                                                 \
    }
