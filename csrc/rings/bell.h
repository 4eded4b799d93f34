// A worker that has nothing to do sleeps on its bell. Whoever sends it a message rings the bell.
//
// The sleeper takes a ticket with listen(), looks at its rings once more, and only then wait()s for a later ring.
// seq_ and n_asleep_ are both seq_cst: either the ringer sees the sleeper (and wakes it) or the sleeper sees the new
// seq_ (and does not sleep). With weaker orders both could miss (the store-buffer case of Dekker's algorithm).
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "base/clock.h"
#include "base/compiler.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace duo {

class bell {
  public:
    // Any thread. Never blocks. Makes a system call only if somebody sleeps.
    void ring() noexcept {
        seq_.fetch_add(1, std::memory_order_seq_cst);
        if (n_asleep_.load(std::memory_order_seq_cst) > 0) {
            wake();
        }
    }

    [[nodiscard]] uint32_t listen() const noexcept { return seq_.load(std::memory_order_seq_cst); }

    // Returns when the bell has rung since `heard` was taken, or at `deadline_us` (now_us() scale). It does not return
    // at spurious wake-ups. True: it rang.
    bool wait(uint32_t heard, int64_t deadline_us = forever) noexcept {
        for (int i = 0; i < n_spin; ++i) {
            if (seq_.load(std::memory_order_acquire) != heard) {
                return true;
            }
            spin_pause();
        }
        n_asleep_.fetch_add(1, std::memory_order_seq_cst);
        bool rang = true;
        while (seq_.load(std::memory_order_seq_cst) == heard) {
            const int64_t left_us = deadline_us == forever ? forever : deadline_us - now_us();
            if (left_us <= 0) {
                rang = false;
                break;
            }
            sleep(heard, left_us);
        }
        n_asleep_.fetch_sub(1, std::memory_order_seq_cst);
        return rang;
    }

    static constexpr int64_t forever = INT64_MAX;

  private:
    // A few microseconds. Longer spinning would take the core from the model's threads.
    static constexpr int n_spin = 64;

#if defined(__linux__)
    void sleep(uint32_t heard, int64_t left_us) noexcept {
        timespec   ts{};
        timespec * timeout = nullptr;
        if (left_us != forever) {
            ts.tv_sec  = left_us / 1000000;
            ts.tv_nsec = (left_us % 1000000) * 1000;
            timeout    = &ts;
        }
        syscall(SYS_futex, reinterpret_cast<uint32_t *>(&seq_), FUTEX_WAIT_PRIVATE, heard, timeout, nullptr, 0);
    }

    void wake() noexcept {
        syscall(SYS_futex, reinterpret_cast<uint32_t *>(&seq_), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
    }

    static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
#else
    // There is no portable futex with a timeout. The lock guards only the sleep itself.
    void sleep(uint32_t heard, int64_t left_us) noexcept {
        std::unique_lock<std::mutex> lock(mutex_);
        if (seq_.load(std::memory_order_seq_cst) != heard) {
            return;
        }
        if (left_us == forever) {
            rang_.wait(lock);
        } else {
            rang_.wait_for(lock, std::chrono::microseconds(left_us));
        }
    }

    void wake() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        rang_.notify_all();
    }

    std::mutex              mutex_;
    std::condition_variable rang_;
#endif

    alignas(64) std::atomic<uint32_t> seq_{0};
    alignas(64) std::atomic<uint32_t> n_asleep_{0};
};

} // namespace duo
