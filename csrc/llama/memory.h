// How much memory is left. duo.placement checks with it whether models fit before they are loaded: if a cache is too
// large, the system kills the process when the pages are written.
#pragma once

#include <cstdint>
#include <string>

namespace duo {

// Bytes of main memory that this process may still allocate; UINT64_MAX: unknown (not Linux). root: the parent of
// /proc and /sys, for tests.
uint64_t memory_available(const std::string & root = "");

} // namespace duo
