#include "cpu_mask.h"

#include <string>

#if defined(__linux__)
#include <sched.h>
#endif

#include "base/error.h"
#include "base/thread_cpus.h"
#include "cpu/team_place.h"

namespace duo {

namespace {

void check_list(const std::vector<int32_t> & cpus) {
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (const int32_t cpu : cpus) {
        if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(size_t(cpu), &allowed)) {
            throw error(error_kind::bad_value, "CPU " + std::to_string(cpu) +
                                                   " is not available to this process (it may run on " +
                                                   std::to_string(CPU_COUNT(&allowed)) + " CPUs); choose others");
        }
    }
#else
    if (!cpus.empty()) {
        throw error(error_kind::bad_value, "CPU masks and ranges work on Linux only; leave them out");
    }
#endif
}

} // namespace

void begin_worker(const std::vector<int32_t> & cpus) {
    cpu::allow_team_places();
    use_cpus(cpus);
}

void check_cpus(const model_options & opt) {
    for (const auto * cpus : {&opt.cpus, &opt.narrow_team.cpus, &opt.wide_team.cpus}) {
        check_list(*cpus);
    }
}

} // namespace duo
