// Moves memory out of the processor's caches, so that the next reading comes from main memory.
#pragma once

#include <cstddef>

namespace duo::cpu {

// Returns false and does nothing if the processor has no such instruction that a program may use: x86 before
// CLFLUSHOPT (Skylake, Zen), ARM except Linux. 64 MB take some milliseconds.
bool evict(const void * p, size_t n);

} // namespace duo::cpu
