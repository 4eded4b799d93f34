// Time, and how long a worker has been busy so far.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace duo {

inline int64_t now_us() noexcept {
    using namespace std::chrono;
    return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}

// Microseconds that one worker has spent inside its model. The worker writes, and any thread may read, even during a
// pass. All of it is one word, so that a reader never sees half an update. While the worker is idle, the word holds the
// total. While it is busy, the word holds (start - total), so the total is now - word. The lowest bit says which.
// Relaxed order is enough, as the word guards no other data.
class busy_clock {
  public:
    void begin(int64_t t_us) noexcept { word_.store(((t_us - total_us_) << 1) | 1, std::memory_order_relaxed); }

    void end(int64_t t_us) noexcept {
        total_us_ = t_us - (word_.load(std::memory_order_relaxed) >> 1);
        word_.store(total_us_ << 1, std::memory_order_relaxed);
    }

    [[nodiscard]] int64_t at(int64_t t_us) const noexcept {
        const int64_t word = word_.load(std::memory_order_relaxed);
        return (word & 1) != 0 ? t_us - (word >> 1) : word >> 1;
    }

  private:
    std::atomic<int64_t> word_{0};
    int64_t              total_us_ = 0; // writer's own
};

} // namespace duo
