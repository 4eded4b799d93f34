#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernel.h"

namespace duo::cpu {

namespace {

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
    if (&k == &kernels_avx512) {
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

std::vector<std::string> refused;

bool is_refused(const kernel_set & k) {
    return std::find(refused.begin(), refused.end(), k.name) != refused.end();
}

} // namespace

const kernel_set * kernels_named(const char * name) {
    for (const kernel_set * k : all) {
        if (std::strcmp(k->name, name) == 0) {
            return can_run(*k) ? k : nullptr;
        }
    }
    return nullptr;
}

std::vector<const kernel_set *> usable_kernels() {
    std::vector<const kernel_set *> found;
    if (const char * name = std::getenv("DUO_CPU_ISA"); name != nullptr && *name != '\0') {
        found.push_back(kernels_named(name));
    } else {
        std::copy_if(std::begin(all), std::end(all), std::back_inserter(found),
                     [](const kernel_set * k) { return k != &kernels_portable && can_run(*k); });
    }
    std::erase_if(found, [](const kernel_set * k) { return k == nullptr || is_refused(*k); });
    return found;
}

void refuse_kernels(std::vector<std::string> names) {
    refused = std::move(names);
}

const std::vector<std::string> & refused_kernels() {
    return refused;
}

const kernel_set * best_kernels() {
    static const kernel_set * const best = []() -> const kernel_set * {
        const std::vector<const kernel_set *> usable = usable_kernels();
        return usable.empty() ? nullptr : usable.front();
    }();
    return best;
}

} // namespace duo::cpu
