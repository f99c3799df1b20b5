// Stackful fibers: a context is where a thread of a kernel goes on when it gets the processor.
//
// Coroutines of the language will not do, as they suspend only their own frame: a device function
// that meets a barrier would have to be written differently.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(CUDA_ON_CPU_UCONTEXT) && (defined(__x86_64__) || defined(__aarch64__))

namespace cuda_on_cpu {
struct Context {
    void* stack_pointer = nullptr;
};
}  // namespace cuda_on_cpu

// Pushes the registers that a callee must keep, stores the stack pointer in *save, continues at the
// other one and pops them there. Floating-point control is the same for all threads. The end is a
// jump, as a return to another stack's caller is always mispredicted.
extern "C" __attribute__((visibility("hidden"))) void cuda_on_cpu_switch(void** save, void* other);

#if defined(__x86_64__)
asm(R"(
    .pushsection .text
    .globl cuda_on_cpu_switch
    .hidden cuda_on_cpu_switch
    .type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size cuda_on_cpu_switch, .-cuda_on_cpu_switch
    .popsection
)");

namespace cuda_on_cpu {
constexpr std::size_t SAVED_WORDS = 8;   // six registers, the return address, its caller's
constexpr std::size_t RETURN_ADDRESS = 6;
}  // namespace cuda_on_cpu
#else
asm(R"(
    .pushsection .text
    .globl cuda_on_cpu_switch
    .hidden cuda_on_cpu_switch
    .type cuda_on_cpu_switch, %function
cuda_on_cpu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    mov x9, x30
    br x9
    .size cuda_on_cpu_switch, .-cuda_on_cpu_switch
    .popsection
)");

namespace cuda_on_cpu {
constexpr std::size_t SAVED_WORDS = 20;
constexpr std::size_t RETURN_ADDRESS = 11;  // x30
}  // namespace cuda_on_cpu
#endif

namespace cuda_on_cpu {

// Makes a context that starts with `entry`, which never returns. `top`, a multiple of 16, is the
// end of its stack.
inline void prepare(Context& context, char* top, std::size_t, void (*entry)()) {
    auto** words = reinterpret_cast<void**>(top) - SAVED_WORDS;
    for (std::size_t i = 0; i < SAVED_WORDS; i++) words[i] = nullptr;
    words[RETURN_ADDRESS] = reinterpret_cast<void*>(entry);
    context.stack_pointer = words;
}

inline void switch_context(Context& from, Context& to) {
    cuda_on_cpu_switch(&from.stack_pointer, to.stack_pointer);
}

}  // namespace cuda_on_cpu

#else  // the same by the C library, which makes a system call per switch

#include <ucontext.h>

namespace cuda_on_cpu {

using Context = ucontext_t;

inline void prepare(Context& context, char* top, std::size_t size, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = top - size;
    context.uc_stack.ss_size = size;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}

inline void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

}  // namespace cuda_on_cpu

#endif
