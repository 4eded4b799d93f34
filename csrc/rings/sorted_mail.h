// One ring, several readers: each takes the messages of its own slot, and whoever looks first sorts for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "channel.h"

namespace duo {

// The ring's only reader. Its owner calls it under one mutex.
template <typename T> class sorted_mail {
  public:
    sorted_mail(channel<T> & ring, int32_t n_slots) : ring_(ring), boxes_(size_t(n_slots)) {}

    // Empties the ring. Messages of a slot that there is not are dropped.
    void sort() {
        for (T msg; ring_.try_pop(msg);) {
            if (msg.slot >= 0 && size_t(msg.slot) < boxes_.size()) {
                boxes_[size_t(msg.slot)].push_back(msg);
            }
        }
    }

    // The slot's next message, of those that were sorted. False: none.
    bool pop(int32_t slot, T & out) {
        std::deque<T> & box = boxes_[size_t(slot)];
        if (box.empty()) {
            return false;
        }
        out = box.front();
        box.pop_front();
        return true;
    }

    // Appends them all. False: there was none.
    bool take_all(int32_t slot, std::vector<T> & out) {
        std::deque<T> & box = boxes_[size_t(slot)];
        const bool      any = !box.empty();
        out.insert(out.end(), box.begin(), box.end());
        box.clear();
        return any;
    }

    void drop(int32_t slot) { boxes_[size_t(slot)].clear(); }

    [[nodiscard]] size_t n_waiting(int32_t slot) const { return boxes_[size_t(slot)].size(); }

  private:
    channel<T> &               ring_;
    std::vector<std::deque<T>> boxes_;
};

} // namespace duo
