#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "amx.h"
#include "kernel.h"

namespace duo::cpu {

namespace {

#if defined(DUO_X86)
kernel_set with_wide(const char * name, const kernel_set & narrow, const wide_kernels & wide) {
    kernel_set k = narrow;
    k.name       = name;
    k.wide       = &wide;
    return k;
}

#if defined(DUO_AMX)
const kernel_set kernels_amx = with_wide("amx", kernels_avx512, wide_amx);
#endif
const kernel_set kernels_amx_emulated = with_wide("amx_emulated", kernels_avx512, wide_amx_emulated);
const kernel_set kernels_amx_portable = with_wide("amx_portable", kernels_portable, wide_amx_portable);
#endif

bool can_run(const kernel_set & k) {
#if defined(DUO_X86)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vnni");
#if defined(DUO_AVX512_BF16)
    if (&k == &kernels_avx512_bf16) {
        return avx512 && __builtin_cpu_supports("avx512bf16");
    }
#endif
#if defined(DUO_AMX)
    if (&k == &kernels_amx) {
        return avx512 && may_use_amx();
    }
#endif
    if (&k == &kernels_avx512 || &k == &kernels_amx_emulated) {
        return avx512;
    }
#if defined(DUO_AVX_VNNI)
    if (&k == &kernels_avx_vnni) {
        return avx2 && __builtin_cpu_supports("avxvnni");
    }
#endif
    if (&k == &kernels_avx2) {
        return avx2;
    }
#endif
#if defined(DUO_X86)
    if (&k == &kernels_amx_portable) {
        return true;
    }
#endif
    return &k == &kernels_portable;
}

// Best first.
constexpr const kernel_set * all[] = {
#if defined(DUO_AVX512_BF16)
    &kernels_avx512_bf16,
#endif
#if defined(DUO_X86)
    &kernels_avx512,
#endif
#if defined(DUO_AVX_VNNI)
    &kernels_avx_vnni,
#endif
#if defined(DUO_X86)
    &kernels_avx2,
#endif
    &kernels_portable,
};

// Never timed, or not meant to be.
constexpr const kernel_set * by_name_alone[] = {
#if defined(DUO_AMX)
    &kernels_amx,
#endif
#if defined(DUO_X86)
    &kernels_amx_emulated,
    &kernels_amx_portable,
#endif
    nullptr,
};

} // namespace

const kernel_set * kernels_named(const char * name) {
    const auto   is_it = [&](const kernel_set * k) { return k != nullptr && std::strcmp(k->name, name) == 0; };
    const auto * k     = std::find_if(std::begin(all), std::end(all), is_it);
    if (k == std::end(all)) {
        k = std::find_if(std::begin(by_name_alone), std::end(by_name_alone), is_it);
        if (k == std::end(by_name_alone)) {
            return nullptr;
        }
    }
    return can_run(**k) ? *k : nullptr;
}

const kernel_set * best_kernels() {
    static const kernel_set * const best = []() -> const kernel_set * {
        if (const char * name = std::getenv("DUO_CPU_ISA"); name != nullptr && *name != '\0') {
            return kernels_named(name);
        }
        for (const kernel_set * k : all) {
            if (can_run(*k)) {
                return k == &kernels_portable ? nullptr : k;
            }
        }
        return nullptr;
    }();
    return best;
}

} // namespace duo::cpu
