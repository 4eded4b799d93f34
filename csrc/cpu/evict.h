// Moves memory out of the processor's caches, so that the next reading comes from main memory.
#pragma once

#include <cstddef>

namespace duo::cpu {

// Whether the processor has an instruction for it that a program may use: x86 since Skylake and Zen (CLFLUSHOPT), ARM
// on Linux (there a cache that belongs to the memory system may keep the lines).
bool can_evict();

// Only if can_evict(). 64 MB take some milliseconds.
void evict(const void * p, size_t n);

} // namespace duo::cpu
