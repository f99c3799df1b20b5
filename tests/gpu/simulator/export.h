// The functions through which Python launches a kernel and learns what it takes.
#pragma once

#include "launch.h"

#include <string>
#include <type_traits>
#include <utility>

namespace cuda_on_cpu {

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
    extern "C" __attribute__((visibility("default"))) unsigned name##__max_threads() {            \
        return cuda_on_cpu::first_of(__VA_ARGS__);                                                 \
    }
