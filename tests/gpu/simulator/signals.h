// Faults that the processor notices become reports: invalid access, endless loops.
#pragma once

#include "request.h"

#include <csignal>
#include <sys/mman.h>
#include <ucontext.h>

namespace cuda_on_cpu {

// Says where an address is as seen from the buffer next to it.
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

}  // namespace cuda_on_cpu
