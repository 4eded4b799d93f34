#include "thread_cpus.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace duo {

std::vector<int32_t> cpus_here() {
    std::vector<int32_t> cpus;
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int32_t i = 0; i < CPU_SETSIZE; ++i) {
        if (CPU_ISSET(size_t(i), &set)) {
            cpus.push_back(i);
        }
    }
#endif
    return cpus;
}

void use_cpus([[maybe_unused]] const std::vector<int32_t> & cpus) {
#if defined(__linux__)
    if (cpus.empty()) {
        return;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int32_t cpu : cpus) {
        CPU_SET(size_t(cpu), &set);
    }
    sched_setaffinity(0, sizeof set, &set);
#endif
}

} // namespace duo
