// Which CPUs a worker's thread runs on.
#pragma once

#include <cstdint>
#include <vector>

#include "llama/model_options.h"

namespace duo {

// The first thing in a worker's thread: binds it to these CPUs; empty: any CPU. Threads that it starts inherit this.
// Its teams may be placed then.
void begin_worker(const std::vector<int32_t> & cpus);
// Throws duo::error if the options name a CPU that this process may not use.
void check_cpus(const model_options & opt);

} // namespace duo
