// What the workers hold: cells, branches and texts. For figures, and for tests that look for leaks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "pass_counts.h"

namespace duo {

// What one worker holds at one moment.
struct worker_usage {
    std::vector<int32_t> cells{};        // tokens that the cache holds, by slot
    int32_t              n_active   = 0; // texts that are written, the parked ones included
    int32_t              n_parked   = 0; // texts that wait because the cache is full (target)
    int32_t              n_branches = 0; // branches of the cache that hold something (target) or are taken (draft)
    int32_t              n_begins   = 0; // requests of drafts that began in mid-text, not yet freed (target)
    int32_t              n_kept     = 0; // ended texts whose cells are kept in RAM (target)
    int64_t              kept_bytes = 0; // theirs
};

// The worker writes it when a text begins or ends and after each pass. Any thread may read. Relaxed order is enough:
// the figures guard no other data.
class usage_board {
  public:
    explicit usage_board(size_t n_slots) : cells_(n_slots) {}

    // Only the worker's thread.
    void write(const worker_usage & u) {
        for (size_t i = 0; i < std::min(cells_.size(), u.cells.size()); ++i) {
            cells_[i].store(u.cells[i], std::memory_order_relaxed);
        }
        n_active_.store(u.n_active, std::memory_order_relaxed);
        n_parked_.store(u.n_parked, std::memory_order_relaxed);
        n_branches_.store(u.n_branches, std::memory_order_relaxed);
        n_begins_.store(u.n_begins, std::memory_order_relaxed);
        n_kept_.store(u.n_kept, std::memory_order_relaxed);
        kept_bytes_.store(u.kept_bytes, std::memory_order_relaxed);
    }

    [[nodiscard]] worker_usage read() const {
        worker_usage u{.n_active   = n_active_.load(std::memory_order_relaxed),
                       .n_parked   = n_parked_.load(std::memory_order_relaxed),
                       .n_branches = n_branches_.load(std::memory_order_relaxed),
                       .n_begins   = n_begins_.load(std::memory_order_relaxed),
                       .n_kept     = n_kept_.load(std::memory_order_relaxed),
                       .kept_bytes = kept_bytes_.load(std::memory_order_relaxed)};
        for (const auto & n : cells_) {
            u.cells.push_back(n.load(std::memory_order_relaxed));
        }
        return u;
    }

  private:
    std::vector<std::atomic<int32_t>> cells_;
    std::atomic<int32_t>              n_active_{0};
    std::atomic<int32_t>              n_parked_{0};
    std::atomic<int32_t>              n_branches_{0};
    std::atomic<int32_t>              n_begins_{0};
    std::atomic<int32_t>              n_kept_{0};
    std::atomic<int64_t>              kept_bytes_{0};
};

// What an engine holds. After a text's last chunk the target's figures are without it; the draft's follow soon.
struct engine_usage {
    worker_usage target{};      // empty: the model is elsewhere
    worker_usage draft{};       // empty: elsewhere, or there is none
    int32_t      n_threads = 0; // of the workers
    int32_t      n_open    = 0; // texts that have not ended, those in the queue included
    int32_t      n_queued  = 0; // texts that wait for a slot
    int32_t      n_unfreed = 0; // ended texts whose requests the draft may still read
    pass_counts  passes{};      // none: the target is elsewhere
};

} // namespace duo
