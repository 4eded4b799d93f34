// Which CPUs a thread runs on.
#pragma once

#include <cstdint>
#include <vector>

namespace duo {

// Binds the calling thread to these CPUs; empty: any CPU. Threads that it starts inherit this.
void pin_this_thread(const std::vector<int32_t> & cpus);
// Throws duo::error for a CPU that this process may not use.
void check_cpus(const std::vector<int32_t> & cpus);

} // namespace duo
