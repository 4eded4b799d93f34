#include "kept_weights.h"

#include <atomic>

namespace duo::cpu {

namespace {
// benchmarks/history/larger_than_memory.md says what it brings.
std::atomic<keeping> keeping_here{keeping::off};
} // namespace

void set_keeping(keeping how) {
    keeping_here.store(how, std::memory_order_relaxed);
}

keeping keeping_now() {
    return keeping_here.load(std::memory_order_relaxed);
}

uint64_t keep_common(std::span<const mapped_weight> all, uint64_t n_free,
                     const std::function<bool(const uint8_t *, size_t)> & lock) {
    const keeping how       = keeping_now();
    uint64_t      n_common  = 0;
    uint64_t      n_experts = 0;
    for (const mapped_weight & w : all) {
        (w.experts ? n_experts : n_common) += w.n_bytes;
    }
    const bool wanted = how == keeping::always || (how == keeping::needed && n_common + n_experts > n_free);
    if (!wanted || n_experts == 0 || n_common > n_free / 2) {
        return 0;
    }
    uint64_t n = 0;
    for (const mapped_weight & w : all) {
        if (!w.experts) {
            if (!lock(w.data, w.n_bytes)) {
                break;
            }
            n += w.n_bytes;
        }
    }
    return n;
}

} // namespace duo::cpu
