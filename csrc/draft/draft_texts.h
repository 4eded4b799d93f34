// All texts that a draft works on, and the cache that they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "branch_pool.h"
#include "draft_text.h"
#include "wires/usage.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the draft worker's thread.
class draft_texts {
  public:
    // Messages name the texts by slots from 0. Throws duo::error if the model has fewer branches than texts.
    draft_texts(token_model & model, const wires & w, int32_t n_texts);

    [[nodiscard]] auto         begin() { return texts_.begin(); }
    [[nodiscard]] auto         end() { return texts_.end(); }
    [[nodiscard]] draft_text * find(int32_t slot); // null: the other side has more slots

    // Has work, and its nodes are taken at the other end.
    [[nodiscard]] bool wants_step(const draft_text & t) const {
        return t.wants_step() && !wires_.signals[size_t(t.slot())].backpressured.load(std::memory_order_relaxed);
    }
    [[nodiscard]] bool any_wants_step() const;

    // Rows that the cache has left.
    [[nodiscard]] int32_t n_free() const;
    // Forgets what the cache holds of texts that have ended, except this one. Returns how many rows that frees.
    int32_t make_room(const draft_text & text);
    // Other texts that are being written hold a part of the cache.
    [[nodiscard]] bool shares_cache(const draft_text & text) const;

    // usage.cells: one for each text.
    void tell(worker_usage & usage) const noexcept;

  private:
    const token_model &    model_;
    const wires &          wires_;
    branch_pool            pool_;
    std::deque<draft_text> texts_; // by slot
};

} // namespace duo
