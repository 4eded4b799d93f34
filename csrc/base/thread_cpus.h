// The CPUs on which the calling thread may run. Threads that it starts inherit them.
#pragma once

#include <cstdint>
#include <vector>

namespace duo {

// Empty: the system does not tell.
std::vector<int32_t> cpus_here();
// Empty: it keeps those that it has.
void use_cpus(const std::vector<int32_t> & cpus);

} // namespace duo
