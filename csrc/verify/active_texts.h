// The texts that are being written, oldest first. Parked ones are not among them (full_cache.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "verify_slot.h"

namespace duo {

// Belongs to the verify worker's thread.
class active_texts {
  public:
    // n_slots: texts at most.
    explicit active_texts(size_t n_slots) { texts_.reserve(n_slots); }

    [[nodiscard]] const std::vector<verify_slot *> & all() const { return texts_; }
    [[nodiscard]] size_t                             size() const { return texts_.size(); }
    [[nodiscard]] bool                               empty() const { return texts_.empty(); }

    void add(verify_slot & s) { texts_.push_back(&s); }
    void remove(verify_slot & s) { std::erase(texts_, &s); }
    // A text that was parked.
    void add_again(verify_slot & s) {
        texts_.insert(std::ranges::upper_bound(texts_, s.n_begun, {}, &verify_slot::n_begun), &s);
    }

  private:
    std::vector<verify_slot *> texts_;
};

} // namespace duo
