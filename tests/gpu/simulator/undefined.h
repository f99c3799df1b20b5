// Reports of the compiler's undefined-behaviour checks, in place of those of its run-time library.
//
// A CPU accepts misaligned vectors and takes shift counts modulo 32; a GPU faults on the former and
// shifts everything out on the latter. The compiler calls these functions, which follow the binary
// interface of UBSan, with a description of the place first.
#pragma once

#include "machine.h"

namespace cuda_on_cpu {

struct CheckedPlace {
    const char* file;
    std::uint32_t line, column;
};

struct CheckedType {
    std::uint16_t kind, info;
    char name[1];
};

struct MisalignedAccess {
    CheckedPlace place;
    const CheckedType* type;
    unsigned char log_alignment, access_kind;
};

[[noreturn]] inline void fail_checked(const void* check, const char* what, unsigned long long value) {
    const auto* place = static_cast<const CheckedPlace*>(check);
    fail_at(place->file, place->line, what, value);
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_CHECK(name, parameters) \
    extern "C" __attribute__((used, visibility("hidden"))) inline void __ubsan_handle_##name parameters

CUDA_ON_CPU_CHECK(type_mismatch_v1, (const void* check, std::uintptr_t address)) {
    const auto* access = static_cast<const cuda_on_cpu::MisalignedAccess*>(check);
    cuda_on_cpu::fail_at(access->place.file, access->place.line,
                         "misaligned address 0x%llx for type %s, which needs a multiple of %u",
                         static_cast<unsigned long long>(address), access->type->name,
                         1u << access->log_alignment);
}
CUDA_ON_CPU_CHECK(shift_out_of_bounds, (const void* check, std::uintptr_t, std::uintptr_t count)) {
    cuda_on_cpu::fail_checked(check, "shift count %lld is negative or not below the width", count);
}
CUDA_ON_CPU_CHECK(out_of_bounds, (const void* check, std::uintptr_t index)) {
    cuda_on_cpu::fail_checked(check, "index %lld is out of the bounds of the array", index);
}
CUDA_ON_CPU_CHECK(divrem_overflow, (const void* check, std::uintptr_t, std::uintptr_t)) {
    cuda_on_cpu::fail_checked(check, "division by zero, or overflow of one", 0);
}
CUDA_ON_CPU_CHECK(float_cast_overflow, (const void* check, std::uintptr_t)) {
    cuda_on_cpu::fail_checked(check, "number out of the range of the integer type", 0);
}
CUDA_ON_CPU_CHECK(builtin_unreachable, (const void* check)) {
    cuda_on_cpu::fail_checked(check, "a place that was declared unreachable was reached", 0);
}
CUDA_ON_CPU_CHECK(missing_return, (const void* check)) {
    cuda_on_cpu::fail_checked(check, "a function ends without returning a value", 0);
}
#undef CUDA_ON_CPU_CHECK

[[noreturn]] inline void __trap(cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    cuda_on_cpu::fail(site, "__trap");
}
