// What compilers and processors spell differently. GCC 12 and Clang 14 accept it. The branches for MSVC were never
// compiled, apart from cpu_supports_by_cpuid(), which a test compares with GCC's own.
#pragma once

#include <cstdint>
#include <string_view>

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#elif defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#if defined(__x86_64__) || (defined(_M_X64) && !defined(_M_ARM64EC))
#define DUO_IS_X86_64 1
#endif

#define DUO_PRAGMA(x) _Pragma(#x)

#if defined(__clang__)
#define DUO_UNROLL(n) DUO_PRAGMA(clang loop unroll_count(n))
#elif defined(__GNUC__)
#define DUO_UNROLL(n) DUO_PRAGMA(GCC unroll n)
#else
#define DUO_UNROLL(n)
#endif

// DUO_INLINE stands before a function, DUO_INLINE_LAMBDA behind the parameters of a lambda.
#if defined(__GNUC__)
#define DUO_INLINE [[gnu::always_inline]] inline
#define DUO_INLINE_LAMBDA __attribute__((always_inline))
#define DUO_NOINLINE [[gnu::noinline]]
#define DUO_TARGET(features) [[gnu::target(features)]]
#else
#define DUO_INLINE __forceinline
#define DUO_INLINE_LAMBDA [[msvc::forceinline]]
#define DUO_NOINLINE __declspec(noinline)
#define DUO_TARGET(features) // MSVC compiles any intrinsic anywhere
#endif

#if defined(_WIN32)
#define DUO_EXPORT __declspec(dllexport)
#else
#define DUO_EXPORT __attribute__((visibility("default")))
#endif

// Keeps an optimiser from seeing through a vector register's value.
#if defined(__GNUC__)
#define DUO_OPAQUE_VECTOR(v) __asm__("" : "+x"(v))
#else
#define DUO_OPAQUE_VECTOR(v) ((void)0)
#endif

// Asks for a cache line; DUO_PREFETCH_2: into the second level. Macros: a function changes the kernels' register
// allocation.
#if defined(__GNUC__)
#define DUO_PREFETCH(p) __builtin_prefetch(p)
#define DUO_PREFETCH_2(p) __builtin_prefetch(p, 0, 2)
#elif defined(_M_X64)
#define DUO_PREFETCH(p) _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0)
#define DUO_PREFETCH_2(p) _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T1)
#else
#define DUO_PREFETCH(p) __prefetch(p)
#define DUO_PREFETCH_2(p) __prefetch(p)
#endif

namespace duo {

// Inside a loop that spins.
inline void spin_pause() noexcept {
#if defined(_MSC_VER) && defined(_M_X64)
    _mm_pause();
#elif defined(_MSC_VER) && defined(_M_ARM64)
    __yield();
#elif defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

#if defined(DUO_IS_X86_64)

struct cpuid_registers {
    uint32_t a = 0, b = 0, c = 0, d = 0;
};

// All zero where the processor has no such leaf.
inline cpuid_registers cpuid(uint32_t leaf, uint32_t part) noexcept {
    cpuid_registers r;
#if defined(_MSC_VER) && !defined(__clang__)
    int x[4];
    __cpuid(x, 0);
    if (leaf <= uint32_t(x[0])) {
        __cpuidex(x, int(leaf), int(part));
        r = {uint32_t(x[0]), uint32_t(x[1]), uint32_t(x[2]), uint32_t(x[3])};
    }
#else
    if (__get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d) == 0) {
        r = {};
    }
#endif
    return r;
}

// Which registers the system saves: XCR0; 0 where it says nothing.
inline uint64_t saved_registers() noexcept {
    if ((cpuid(1, 0).c & (1u << 27)) == 0) { // OSXSAVE
        return 0;
    }
#if defined(_MSC_VER) && !defined(__clang__)
    return _xgetbv(0);
#else
    uint32_t low  = 0;
    uint32_t high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t(high) << 32 | low;
#endif
}

// As __builtin_cpu_supports(), which MSVC has not, and Clang not for all names. Intel's manual, volume 2A, CPUID. false
// for names that duo does not ask.
inline bool cpu_supports_by_cpuid(std::string_view name) noexcept {
    struct bit {
        std::string_view name;
        uint32_t         leaf, part;
        uint32_t cpuid_registers::*in;
        int                        at;
        uint64_t                   saved; // in XCR0: 0x6 is AVX, 0xe6 is AVX-512
    };
    constexpr bit all[] = {
        {"avx2", 7, 0, &cpuid_registers::b, 5, 0x6},         {"fma", 1, 0, &cpuid_registers::c, 12, 0x6},
        {"f16c", 1, 0, &cpuid_registers::c, 29, 0x6},        {"avxvnni", 7, 1, &cpuid_registers::a, 4, 0x6},
        {"avx512f", 7, 0, &cpuid_registers::b, 16, 0xe6},    {"avx512dq", 7, 0, &cpuid_registers::b, 17, 0xe6},
        {"avx512bw", 7, 0, &cpuid_registers::b, 30, 0xe6},   {"avx512vl", 7, 0, &cpuid_registers::b, 31, 0xe6},
        {"avx512vnni", 7, 0, &cpuid_registers::c, 11, 0xe6}, {"avx512bf16", 7, 1, &cpuid_registers::a, 5, 0xe6},
    };
    for (const bit & b : all) {
        if (b.name == name) {
            return (cpuid(b.leaf, b.part).*b.in >> b.at & 1) != 0 && (saved_registers() & b.saved) == b.saved;
        }
    }
    return false;
}

#if defined(__GNUC__) && !defined(__clang__)
#define DUO_CPU_SUPPORTS(name) (__builtin_cpu_supports(name) != 0)
#else
#define DUO_CPU_SUPPORTS(name) ::duo::cpu_supports_by_cpuid(name)
#endif

#endif

} // namespace duo
