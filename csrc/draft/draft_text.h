// One text that the draft works on: its request, the target's orders, its cached tokens, and the nodes that come next.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cached_text.h"
#include "draft_frontier.h"
#include "draft_orders.h"
#include "model/token_model.h"
#include "text/request.h"

namespace duo {

// One for each slot; belongs to the draft worker's thread.
class draft_text {
  public:
    // slot: its place, in all messages. Model and pool must outlive it.
    draft_text(const token_model & model, branch_pool & pool, int32_t slot)
        : slot_(slot), n_branch_(model.facts().n_branch), cache_(model, pool), frontier_(model, cache_, orders_) {}
    draft_text(const draft_text &) = delete; // its parts point to each other

    // The prompt's last token is the root. Returns the node that names it.
    std::optional<node_msg> begin(const request & req, node_counter & ids);
    void                    take_orders(const verdict_msg & v);
    // Re-roots. Returns the node that names the root, if the draft had not guessed the token. Throws duo::error if the
    // verdict names an unknown node.
    std::optional<node_msg> apply(const verdict_msg & v, node_counter & ids);
    // A row of the target's hidden states, for a draft head.
    void take_features(int32_t pos, token_id token, std::span<const float> features);
    // Lets go of the request.
    void end();

    // Until orders or features come, there is nothing to do.
    void               pause() { paused_ = true; }
    [[nodiscard]] bool active() const { return req_ != nullptr; }
    // There is something to do.
    [[nodiscard]] bool wants_step() const {
        return active() && !paused_ && !req_->cancelled.load(std::memory_order_relaxed);
    }

    [[nodiscard]] int32_t              slot() const { return slot_; }
    [[nodiscard]] const request &      req() const { return *req_; } // while active()
    [[nodiscard]] const draft_orders & orders() const { return orders_; }
    [[nodiscard]] cached_text &        cache() { return cache_; }
    [[nodiscard]] const cached_text &  cache() const { return cache_; }
    [[nodiscard]] draft_frontier &     frontier() { return frontier_; }

  private:
    std::optional<node_msg> commit(token_id token, node_counter & ids);

    const int32_t slot_;
    const int32_t n_branch_; // of the model

    const request * req_    = nullptr; // null: no work
    bool            paused_ = false;
    draft_orders    orders_;
    cached_text     cache_;
    draft_frontier  frontier_;
};

} // namespace duo
