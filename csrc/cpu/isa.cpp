#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "amx.h"
#include "base/compiler.h"
#include "kernel.h"

#if defined(DUO_ARM) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(DUO_ARM) && defined(__linux__)
#include <sys/auxv.h>
#endif

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

bool has_avx2() {
    return DUO_CPU_SUPPORTS("avx2") && DUO_CPU_SUPPORTS("fma") && DUO_CPU_SUPPORTS("f16c");
}

bool has_avx512() {
    return has_avx2() && DUO_CPU_SUPPORTS("avx512f") && DUO_CPU_SUPPORTS("avx512bw") && DUO_CPU_SUPPORTS("avx512vl") &&
           DUO_CPU_SUPPORTS("avx512dq") && DUO_CPU_SUPPORTS("avx512vnni");
}

#if defined(DUO_AVX_VNNI)
bool has_avx_vnni() {
    return has_avx2() && DUO_CPU_SUPPORTS("avxvnni");
}
#endif

#if defined(DUO_AVX512_BF16)
bool has_avx512_bf16() {
    return has_avx512() && DUO_CPU_SUPPORTS("avx512bf16");
}
#endif

#if defined(DUO_AMX)
bool has_amx() {
    return has_avx512() && may_use_amx();
}
#endif

#elif defined(DUO_ARM)

#if defined(__APPLE__)
bool has(const char * feature) {
    int    yes  = 0;
    size_t size = sizeof yes;
    return sysctlbyname(feature, &yes, &size, nullptr, 0) == 0 && yes != 0;
}

bool has_dot() {
    return has("hw.optional.arm.FEAT_DotProd");
}

[[maybe_unused]] bool has_i8mm() {
    return has_dot() && has("hw.optional.arm.FEAT_I8MM") && has("hw.optional.arm.FEAT_BF16");
}
#elif defined(__linux__)
// Bits of Linux's asm/hwcap.h; older systems have no names for them.
bool has_dot() {
    return (getauxval(AT_HWCAP) & (1UL << 20)) != 0; // HWCAP_ASIMDDP
}

[[maybe_unused]] bool has_i8mm() {
    constexpr unsigned long i8mm_bf16 = (1UL << 13) | (1UL << 14); // HWCAP2_I8MM, HWCAP2_BF16
    return has_dot() && (getauxval(AT_HWCAP2) & i8mm_bf16) == i8mm_bf16;
}
#else
bool has_dot() {
    return false;
}

[[maybe_unused]] bool has_i8mm() {
    return false;
}
#endif

#endif

bool has_nothing() {
    return true;
}

struct row {
    const kernel_set * kernels;
    bool (*can_run)();
    bool by_name_alone = false; // for tests only
};

// Best first.
constexpr row all[] = {
#if defined(DUO_AMX)
    {&kernels_amx, has_amx},
#endif
#if defined(DUO_AVX512_BF16)
    {&kernels_avx512_bf16, has_avx512_bf16},
#endif
#if defined(DUO_X86)
    {&kernels_avx512, has_avx512},
#endif
#if defined(DUO_AVX_VNNI)
    {&kernels_avx_vnni, has_avx_vnni},
#endif
#if defined(DUO_X86)
    {&kernels_avx2, has_avx2},
#endif
#if defined(DUO_I8MM)
    {&kernels_neon_i8mm, has_i8mm},
#endif
#if defined(DUO_ARM)
    {&kernels_neon_dot, has_dot},
#endif
    {&kernels_portable, has_nothing},
#if defined(DUO_X86)
    {&kernels_amx_emulated, has_avx512, true},
    {&kernels_amx_portable, has_nothing, true},
#endif
};

std::vector<std::string> refused;

bool is_refused(const kernel_set & k) {
    return std::find(refused.begin(), refused.end(), k.name) != refused.end();
}

} // namespace

std::vector<const kernel_set *> kernels_here(bool by_name_alone) {
    std::vector<const kernel_set *> usable;
    for (const row & r : all) {
        if (r.by_name_alone == by_name_alone && r.can_run()) {
            usable.push_back(r.kernels);
        }
    }
    return usable;
}

const kernel_set * kernels_named(const char * name) {
    for (const row & r : all) {
        if (std::strcmp(r.kernels->name, name) == 0) {
            return r.can_run() ? r.kernels : nullptr;
        }
    }
    return nullptr;
}

std::vector<const kernel_set *> usable_kernels() {
    std::vector<const kernel_set *> found;
    if (const char * name = std::getenv("DUO_CPU_ISA"); name != nullptr && *name != '\0') {
        found.push_back(kernels_named(name));
    } else {
        found = kernels_here();
        std::erase(found, &kernels_portable);
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
