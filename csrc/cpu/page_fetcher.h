// Reads pieces of mapped weights in a thread of its own, in the order in which they are needed, and measures the disk.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/thread_cpus.h"
#include "page_system.h"

namespace duo::cpu {

// One thread gives orders; the fetcher's own one carries them out, on the CPUs of the thread that made the fetcher: one
// that computes may be bound to a single one. The order is shared, under the mutex; what flies, and the sums, belong to
// the fetcher's thread.
class page_fetcher {
  public:
    using piece = std::span<const uint8_t>;

    // now: microseconds
    explicit page_fetcher(page_system system, std::function<int64_t()> now = now_us);
    // Ends after the piece that is being read.
    ~page_fetcher();
    page_fetcher(const page_fetcher &)             = delete;
    page_fetcher & operator=(const page_fetcher &) = delete;

    // From now on these, first things first. What was ordered before and has not begun is dropped; what has begun in
    // the same round is not read again.
    void fetch(std::span<const piece> pieces, uint64_t round);

    // Of what is not in memory; 0: nothing was read yet.
    [[nodiscard]] double bytes_per_us() const { return bytes_per_us_.load(std::memory_order_relaxed); }
    // The part of the bytes so far that was not in memory.
    [[nodiscard]] double missing() const { return missing_.load(std::memory_order_relaxed); }

  private:
    // The disk works on so many at once: with fewer it would wait for orders, with more what is needed at once would
    // wait for them.
    static constexpr size_t n_flying_most = 4;

    struct flight {
        const uint8_t * last; // of its pages that were not in memory; nullptr: not known
        int64_t         t_us; // when it began
        uint64_t        n_bytes;
    };
    struct order {
        std::vector<piece>                  pieces;
        size_t                              i_next = 0;
        uint64_t                            round  = 0;
        std::unordered_set<const uint8_t *> begun; // in this round
        bool                                ends = false;
    };

    void                               work();
    void                               carry_out();
    void                               drop();
    [[nodiscard]] std::optional<piece> next();
    void                               begin(piece p);
    [[nodiscard]] const uint8_t *      last_missing(piece p) const;
    void                               end_first();

    page_system              system_;
    std::function<int64_t()> now_;
    std::vector<int32_t>     cpus_ = cpus_here();
    std::mutex               mutex_;
    std::condition_variable  news_;
    order                    order_;

    std::deque<flight>  flying_;
    int64_t             t_last_  = 0; // when the last one ended
    double              n_asked_ = 0, n_missed_ = 0;
    double              n_read_ = 0, us_ = 0;
    std::atomic<double> bytes_per_us_ = 0.0;
    std::atomic<double> missing_      = 1.0;
    std::thread         thread_; // begins with the first order
};

} // namespace duo::cpu
