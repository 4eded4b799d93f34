// What the system tells of the pages of mapped weights, and what it can be asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace duo::cpu {

// Addresses are those of weights. Any thread may call these.
struct page_system {
    std::function<bool(const uint8_t *)>         is_mapped; // from a file
    std::function<bool(const uint8_t *)>         in_memory; // the page of this byte, as far as the system tells
    std::function<void(const uint8_t *, size_t)> want;      // reads so many bytes in the background
    std::function<uint64_t()>                    n_read;    // blocks that this process has read; fetch() does not count
    // Like want(), for what may be needed. Returns how many of the bytes were not in memory.
    std::function<uint64_t(const uint8_t *, size_t)> fetch = {};
    std::function<void(const uint8_t *)>             wait  = {}; // until the page of this byte is there
};

} // namespace duo::cpu
