// Which mapped weights stay in memory: those that each token needs, of a mixture that does not fit into it, so that
// experts that come do not push them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace duo::cpu {

enum class keeping : uint8_t {
    off,    // the system alone decides what stays
    needed, // of a mixture that is larger than the memory that is free
    always, // of any mixture; for tests
};

// Of the models that this process loads from now on.
void    set_keeping(keeping how);
keeping keeping_now();

struct mapped_weight {
    const uint8_t * data;
    size_t          n_bytes;
    bool            experts; // one matrix for each expert
};

// Locks attention, shared experts, routers and the output. Nothing if there are no experts, or if this would take more
// than half of n_free, the bytes of memory that are free. lock: false if the system refuses, and that ends it. Returns
// the bytes that are locked.
uint64_t keep_common(std::span<const mapped_weight> all, uint64_t n_free,
                     const std::function<bool(const uint8_t *, size_t)> & lock);

} // namespace duo::cpu
