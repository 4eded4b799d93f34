// A ring with a bell at each end: pushing wakes the reader, popping wakes a writer that waits for room.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bell.h"
#include "spsc_ring.h"

namespace duo {

// The reader rings the writer only if the writer waits for room; n_waiting_ says so. The writer raises it before it
// looks for room once more, and the reader looks at it after it has made room. Both are acq_rel read-modify-writes of
// one atomic, so one of them comes first: either the reader sees the writer waiting, or the writer sees the room.
template <typename T> class channel {
  public:
    channel(size_t capacity, bell & writer, bell & reader) : ring_(capacity), writer_(writer), reader_(reader) {}

    // Producer. Sleeps while the ring is full; false: closed, the message is dropped.
    bool push(const T & value) noexcept {
        const bool pushed = push_quiet(value);
        if (pushed) {
            wake();
        }
        return pushed;
    }

    // The same, but the reader sleeps on until wake(), or until the ring is full.
    bool push_quiet(const T & value) noexcept {
        if (ring_.closed()) {
            return false;
        }
        while (!ring_.try_push(value)) {
            reader_.ring();
            const uint32_t heard = writer_.listen();
            n_waiting_.fetch_add(1, std::memory_order_acq_rel);
            const bool pushed = ring_.try_push(value);
            if (!pushed && !ring_.closed()) {
                writer_.wait(heard);
            }
            n_waiting_.fetch_sub(1, std::memory_order_acq_rel);
            if (pushed || ring_.closed()) {
                return pushed;
            }
        }
        return true;
    }

    void wake() noexcept { reader_.ring(); }

    // Producer, when losing the message is better than waiting.
    bool try_push(const T & value) noexcept {
        const bool pushed = ring_.try_push(value);
        wake(); // a reader that sleeps on a full ring is to make room
        return pushed;
    }

    // The same, but the reader sleeps on while there is room.
    bool try_push_quiet(const T & value) noexcept { return ring_.try_push(value) || try_push(value); }

    // Consumer. Never sleeps: the consumer waits on its own bell, which serves all its rings.
    bool try_pop(T & value) noexcept {
        if (!ring_.try_pop(value)) {
            return false;
        }
        if (n_waiting_.fetch_add(0, std::memory_order_acq_rel) > 0) {
            writer_.ring();
        }
        return true;
    }

    // Appends whatever there is. False: nothing.
    bool take_all(std::vector<T> & out) {
        const size_t n = out.size();
        for (T value; try_pop(value);) {
            out.push_back(std::move(value));
        }
        return out.size() > n;
    }

    void close() noexcept {
        ring_.close();
        writer_.ring();
        reader_.ring();
    }

    [[nodiscard]] bool closed() const noexcept { return ring_.closed(); }

    [[nodiscard]] const spsc_ring<T> & ring() const noexcept { return ring_; }

  private:
    spsc_ring<T> ring_;
    bell &       writer_;
    bell &       reader_;

    std::atomic<uint32_t> n_waiting_{0}; // 1 while the writer waits for room
};

} // namespace duo
