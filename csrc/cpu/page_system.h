// What the system tells of the pages of mapped weights, and what it can be asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace duo::cpu {

// Addresses are those of weights. Any thread may call `want` and what stands below `n_read`.
struct page_system {
    std::function<bool(const uint8_t *)>         is_mapped; // from a file
    std::function<bool(const uint8_t *)>         in_memory; // the page of this byte
    std::function<void(const uint8_t *, size_t)> want;      // reads so many bytes in the background
    std::function<uint64_t()>                    n_read;    // blocks that this process has read from disks so far
    std::function<void(const uint8_t *, size_t)> wait        = {}; // until what was wanted is there
    std::function<uint64_t()>                    n_read_here = {}; // bytes that the calling thread has read so far
};

} // namespace duo::cpu
