// Bounded lock-free ring for one producer thread and one consumer thread (after rigtorp/SPSCQueue).
//
// Ownership. The producer alone writes i_write_, the slots between i_write_ and i_read_ + capacity, and i_read_cache_.
// The consumer alone writes i_read_ and i_write_cache_, and reads the slots between i_read_ and i_write_. A slot
// changes hands by a release store of an index and an acquire load on the other side, which orders the slot's bytes
// before the index; nothing else needs ordering. Each side looks at the other's index only when its cached copy says
// full or empty, so in steady state no cache line bounces. Indices only grow (up to 2^64) and are masked on use, so no
// slot has to stay empty.
//
// A ring never blocks. channel.h adds the bells on which its two sides sleep.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace duo {

template <typename T> class spsc_ring {
    static_assert(std::is_trivially_copyable_v<T>, "messages are copied as bytes");

  public:
    explicit spsc_ring(size_t capacity)
        : n_mask_(std::bit_ceil(capacity < 2 ? size_t(2) : capacity) - 1), slots_(std::make_unique<T[]>(n_mask_ + 1)) {}

    spsc_ring(const spsc_ring &)             = delete;
    spsc_ring & operator=(const spsc_ring &) = delete;

    // Producer. False: full.
    [[nodiscard]] bool try_push(const T & value) noexcept {
        const uint64_t i = i_write_.load(std::memory_order_relaxed);
        if (i - i_read_cache_ > n_mask_) {
            i_read_cache_ = i_read_.load(std::memory_order_acquire);
            if (i - i_read_cache_ > n_mask_) {
                return false;
            }
        }
        slots_[i & n_mask_] = value;
        i_write_.store(i + 1, std::memory_order_release);
        return true;
    }

    // Consumer. False: empty.
    [[nodiscard]] bool try_pop(T & value) noexcept {
        const uint64_t i = i_read_.load(std::memory_order_relaxed);
        if (i == i_write_cache_) {
            i_write_cache_ = i_write_.load(std::memory_order_acquire);
            if (i == i_write_cache_) {
                return false;
            }
        }
        value = slots_[i & n_mask_];
        i_read_.store(i + 1, std::memory_order_release);
        return true;
    }

    // Either side. What was pushed before stays readable; release, so that a consumer that sees closed() and then finds
    // the ring empty has seen all of it.
    void               close() noexcept { closed_.store(true, std::memory_order_release); }
    [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

    [[nodiscard]] size_t capacity() const noexcept { return n_mask_ + 1; }

    // Messages since the beginning. Both only grow.
    [[nodiscard]] uint64_t n_written() const noexcept { return i_write_.load(std::memory_order_relaxed); } // producer
    [[nodiscard]] uint64_t n_read() const noexcept { return i_read_.load(std::memory_order_relaxed); }     // any thread

  private:
    static constexpr size_t cache_line = 64;

    const size_t         n_mask_;
    std::unique_ptr<T[]> slots_;

    alignas(cache_line) std::atomic<uint64_t> i_write_{0};
    alignas(cache_line) uint64_t i_read_cache_ = 0; // producer's copy of i_read_
    alignas(cache_line) std::atomic<uint64_t> i_read_{0};
    alignas(cache_line) uint64_t i_write_cache_ = 0; // consumer's copy of i_write_
    alignas(cache_line) std::atomic<bool> closed_{false};
};

} // namespace duo
