// The writing end of a ring that several texts share. Each may have a limited number of messages in it, so a text that
// writes too much does not block the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "channel.h"

namespace duo {

// The ring's only writer. Its owner calls it under one mutex.
template <typename T> class shared_ring {
  public:
    // n_each: messages of one slot at most. All slots together must fit into the ring.
    shared_ring(channel<T> & ring, int32_t n_slots, size_t n_each)
        : ring_(ring), n_each_(n_each), places_(size_t(n_slots)) {}

    // False: the slot has its share of the ring, or the ring is full.
    bool try_push(int32_t slot, T msg, bool last = false) {
        std::deque<uint64_t> & mine = places_[size_t(slot)];
        while (!mine.empty() && mine.front() < ring_.ring().n_read()) {
            mine.pop_front();
        }
        msg.slot         = slot;
        const uint64_t i = ring_.ring().n_written();
        // A last message may exceed the share, or a text could not end.
        if ((mine.size() >= n_each_ && !last) || !ring_.try_push(msg)) {
            return false;
        }
        mine.push_back(i);
        return true;
    }

  private:
    channel<T> &                      ring_;
    const size_t                      n_each_;
    std::vector<std::deque<uint64_t>> places_; // of the slot's messages in the ring
};

} // namespace duo
