#include "amx.h"

#include <stdexcept>
#include <string>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace duo::cpu {

#if defined(__x86_64__) && defined(__linux__)
namespace {

bool processor_has_it() {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid_count(1, 0, &a, &b, &c, &d) == 0 || (c & (1u << 27)) == 0) { // OSXSAVE
        return false;
    }
    uint32_t low  = 0;
    uint32_t high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr uint32_t states = 3u << 17; // XTILECFG, XTILEDATA
    if ((low & states) != states) {
        return false;
    }
    constexpr unsigned features = (1u << 22) | (1u << 24) | (1u << 25); // AMX-BF16, AMX-TILE, AMX-INT8
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & features) == features;
}

bool system_allows_it() {
    constexpr long request   = 0x1023; // ARCH_REQ_XCOMP_PERM
    constexpr long tile_data = 18;     // XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
}

} // namespace

bool may_use_amx() {
    static const bool may = processor_has_it() && system_allows_it();
    return may;
}
#else
bool may_use_amx() {
    return false;
}
#endif

void tile_fault(const char * what) {
    throw std::logic_error(std::string("emulated tiles: ") + what);
}

} // namespace duo::cpu
