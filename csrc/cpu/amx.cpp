#include "amx.h"

#include <stdexcept>
#include <string>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "base/compiler.h"
#endif

namespace duo::cpu {

#if defined(__x86_64__) && defined(__linux__)
namespace {

bool processor_has_it() {
    constexpr uint64_t states   = 3u << 17;                             // XTILECFG, XTILEDATA
    constexpr uint32_t features = (1u << 22) | (1u << 24) | (1u << 25); // AMX-BF16, AMX-TILE, AMX-INT8
    return (saved_registers() & states) == states && (cpuid(7, 0).d & features) == features;
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
