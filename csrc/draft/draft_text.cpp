#include "draft_text.h"

#include "base/error.h"

namespace duo {

std::optional<node_msg> draft_text::begin(const request & req, node_counter & ids) {
    req_ = &req;
    frontier_.begin(req.plan);
    cache_.begin(req.prompt, req.pictures, req.plan.n_window, req.id);
    return commit(req.prompt.back(), ids);
}

void draft_text::take_orders(const verdict_msg & v) {
    orders_ = draft_orders::of(v, n_branch_);
    paused_ = false;
}

std::optional<node_msg> draft_text::apply(const verdict_msg & v, node_counter & ids) {
    const int32_t i = v.accepted == no_node ? 0 : cache_.tree().find(v.accepted);
    if (i < 0) {
        throw error(error_kind::peer_lost,
                    "the draft lost step with the target: a verdict names a node that was never sent");
    }
    cache_.accept(i);
    return commit(v.token, ids);
}

// The token after the root became certain.
std::optional<node_msg> draft_text::commit(token_id token, node_counter & ids) {
    const node_id up = cache_.tree().root().id;
    if (!cache_.commit(token, ids)) {
        return std::nullopt;
    }
    return node_msg{.guess = false, .slot = slot_, .id = cache_.tree().root().id, .parent = up, .token = token};
}

void draft_text::take_features(int32_t pos, token_id token, std::span<const float> features) {
    cache_.head()->take(pos, token, features);
    paused_ = false;
}

void draft_text::end() {
    if (req_ != nullptr) {
        req_->draft_done.store(true, std::memory_order_release);
        req_ = nullptr;
    }
}

} // namespace duo
