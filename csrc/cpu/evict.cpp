#include "evict.h"

#include <cstdint>

#include "base/compiler.h"

#if defined(DUO_X86)
#include <immintrin.h>
#endif

namespace duo::cpu {

#if defined(DUO_X86)
bool can_evict() {
    constexpr uint32_t clflushopt = 1u << 23;
    static const bool  can        = (cpuid(7, 0).b & clflushopt) != 0;
    return can;
}

DUO_TARGET("clflushopt") void evict(const void * p, size_t n) {
    constexpr uintptr_t n_line = 64; // bytes of a cache line, on every x86 processor
    const auto          end    = reinterpret_cast<uintptr_t>(p) + n;
    for (uintptr_t at = reinterpret_cast<uintptr_t>(p) / n_line * n_line; at < end; at += n_line) {
        _mm_clflushopt(reinterpret_cast<void *>(at));
    }
    _mm_mfence();
}
#elif defined(DUO_ARM) && defined(__linux__)
bool can_evict() {
    return true;
}

void evict(const void * p, size_t n) {
    uint64_t type;
    asm volatile("mrs %0, ctr_el0" : "=r"(type));
    const uintptr_t n_line = uintptr_t(4) << (type >> 16 & 15); // DminLine: the smallest line, in words
    const auto      end    = reinterpret_cast<uintptr_t>(p) + n;
    for (uintptr_t at = reinterpret_cast<uintptr_t>(p) / n_line * n_line; at < end; at += n_line) {
        asm volatile("dc civac, %0" ::"r"(at) : "memory");
    }
    asm volatile("dsb ish" ::: "memory");
}
#else
bool can_evict() {
    return false;
}

void evict(const void *, size_t) {
}
#endif

} // namespace duo::cpu
