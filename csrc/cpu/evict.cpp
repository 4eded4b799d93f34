#include "evict.h"

#include <cstdint>

#include "compiler.h"

#if defined(DUO_X86)
#include <immintrin.h>
#endif

namespace duo::cpu {

#if defined(DUO_X86)
namespace {

constexpr size_t n_line = 64; // bytes of a cache line, the same on every x86 processor

bool has_clflushopt() {
    constexpr uint32_t feature = 1u << 23;
    static const bool  has     = (cpuid(7, 0).b & feature) != 0;
    return has;
}

DUO_TARGET("clflushopt") void flush_lines(const char * p, const char * end) {
    for (; p < end; p += n_line) {
        _mm_clflushopt(const_cast<char *>(p));
    }
}

} // namespace

bool evict(const void * p, size_t n) {
    if (!has_clflushopt()) {
        return false;
    }
    flush_lines(static_cast<const char *>(p), static_cast<const char *>(p) + n);
    _mm_mfence();
    return true;
}
#elif defined(DUO_ARM) && defined(__linux__)
bool evict(const void * p, size_t n) {
    uint64_t type;
    asm volatile("mrs %0, ctr_el0" : "=r"(type));
    const size_t n_line = size_t(4) << (type >> 16 & 15); // DminLine: the smallest line, in words
    const auto   end    = reinterpret_cast<uintptr_t>(p) + n;
    for (uintptr_t at = reinterpret_cast<uintptr_t>(p) / n_line * n_line; at < end; at += n_line) {
        asm volatile("dc civac, %0" ::"r"(at) : "memory");
    }
    asm volatile("dsb ish" ::: "memory");
    return true;
}
#else
bool evict(const void *, size_t) {
    return false;
}
#endif

} // namespace duo::cpu
