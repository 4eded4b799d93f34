// A disk whose pieces come when the test wants it, with weights that are mapped from it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/page_system.h"

namespace duo_test {

// A disk that fetches a piece when it is allowed to. What the test's own thread wants is there at once. Each thread has
// a clock of its own.
class scripted_disk {
  public:
    explicit scripted_disk(size_t n_bytes) : file_(n_bytes) {}

    duo::cpu::page_system system() {
        return {.is_mapped = [this](const uint8_t * p) { return p >= begin() && p < begin() + file_.size(); },
                .in_memory = [this](const uint8_t * p) { return locked([&] { return p == shared_; }); },
                .want      = [](const uint8_t *, size_t) {},
                .n_read    = [this] { return ++n_rounds_; },
                .fetch     = [this](const uint8_t * p, size_t n) { return fetch(p, n); },
                .wait      = [this](const uint8_t * p) { wait(p); }};
    }
    std::function<int64_t()> clock() {
        return [this] { return locked([this] { return is_test() ? t_test_us_ : t_us_; }); };
    }

    const uint8_t * begin() const { return file_.data(); }

    // So many bytes take a microsecond.
    void set_speed(int64_t bytes_per_us) {
        locked([&] { return bytes_per_us_ = bytes_per_us; });
    }
    void pass_time(int64_t us) {
        locked([&] { return t_test_us_ += us; });
    }
    // The page of this byte is in memory for another matrix.
    void share(size_t offset) {
        locked([&] { return shared_ = begin() + offset; });
    }
    // Waits until so many pieces were waited for; by which bytes.
    std::vector<size_t> waited(size_t n) {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [&] { return waited_.size() >= n; });
        return waited_;
    }
    // Pieces of [offset, offset + n) are in memory.
    void keep(size_t offset, size_t n) {
        locked([&] { return kept_ = {offset, n}; });
    }
    // Waits until so many pieces were wanted, and takes their offsets.
    std::vector<size_t> wanted(size_t n) {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [&] { return wanted_.size() >= n; });
        return std::exchange(wanted_, {});
    }
    // So many pieces find no memory.
    void fail(int n) {
        locked([&] { return n_failures_ = n; });
    }
    // So many pieces more may be waited for.
    void allow(int n) {
        locked([&] { return n_allowed_ += n; });
        news_.notify_all();
    }

  private:
    bool is_test() const { return std::this_thread::get_id() == test_; }

    template <class F> std::invoke_result_t<F> locked(F f) {
        const std::lock_guard lock(mutex_);
        return f();
    }
    uint64_t fetch(const uint8_t * p, size_t n) {
        const std::lock_guard lock(mutex_);
        const auto            at     = size_t(p - begin());
        const bool            is_new = at < kept_.first || at >= kept_.first + kept_.second;
        wanted_.push_back(at);
        news_.notify_all();
        if (n_failures_ > 0) {
            --n_failures_;
            throw std::bad_alloc();
        }
        if (is_new) {
            flying_.push_back(int64_t(n));
        }
        return is_new ? n : 0;
    }
    void wait(const uint8_t * p) {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [this] { return n_allowed_ > 0; });
        --n_allowed_;
        waited_.push_back(size_t(p - begin()));
        t_us_ += flying_.front() / bytes_per_us_;
        flying_.erase(flying_.begin());
        news_.notify_all();
    }

    const std::thread::id     test_ = std::this_thread::get_id();
    std::vector<uint8_t>      file_;
    std::mutex                mutex_;
    std::condition_variable   news_;
    std::vector<size_t>       wanted_;
    std::vector<int64_t>      flying_;
    std::vector<size_t>       waited_;
    const uint8_t *           shared_ = nullptr;
    std::pair<size_t, size_t> kept_;
    uint64_t                  n_rounds_     = 0;
    int64_t                   t_us_         = 0;
    int64_t                   t_test_us_    = 0;
    int64_t                   bytes_per_us_ = 1;
    int                       n_allowed_    = 0;
    int                       n_failures_   = 0;
};

} // namespace duo_test
