#include "draft_worker.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>

namespace duo {

void draft_worker::run() noexcept {
    for (;;) {
        const uint32_t heard = wires_.draft_bell.listen();
        const bool     last  = wires_.verdicts.closed();
        try {
            take_verdicts();
            if (last) {
                break;
            }
            if (req_ != nullptr && !paused_ && !req_->cancelled.load(std::memory_order_relaxed)) {
                step();
                continue;
            }
        } catch (const std::exception & e) {
            fail(e.what());
            continue;
        } catch (...) {
            fail("the draft model failed for an unknown reason");
            continue;
        }
        wires_.draft_bell.wait(heard);
    }
    end();
}

void draft_worker::take_verdicts() {
    verdict_msg v;
    while (wires_.verdicts.try_pop(v)) {
        switch (v.what) {
            case verdict_msg::kind::begin:
                end();
                begin(*v.req);
                take_orders(v);
                break;
            case verdict_msg::kind::orders:
                if (req_ != nullptr && v.slot == req_->slot) {
                    take_orders(v);
                }
                break;
            case verdict_msg::kind::verdict:
                if (req_ != nullptr && v.slot == req_->slot) {
                    apply(v);
                }
                break;
            case verdict_msg::kind::end:
                end();
                break;
        }
    }
}

void draft_worker::take_orders(const verdict_msg & v) {
    n_ahead_      = v.n_ahead;
    n_branch_     = std::min(int32_t(v.n_branch), model_.n_branch());
    n_want_       = v.n_want;
    branch_price_ = float(v.branch_price) * 1e-3f;
    least_path_   = v.least_path > 0 ? std::log(float(v.least_path) * 1e-3f) : -std::numeric_limits<float>::infinity();
    paused_       = false;
    n_threads_    = v.n_threads;
    model_.use_threads(n_threads_);
}

void draft_worker::begin(const request & req) {
    req_   = &req;
    shape_ = tree_shape(req.plan.tree);
    cache_.begin(text_, req.prompt);
    text_.assign(req.prompt.begin(), req.prompt.end() - 1);
    readable_ = std::all_of(text_.begin(), text_.end(), [this](token_id t) { return t < model_.n_vocab(); });
    tree_.reset(req.id, no_token);
    places_.assign(1, 0); // the root's place is known before the shape is looked at
    commit(req.prompt.back());
}

void draft_worker::end() {
    if (req_ != nullptr) {
        req_->draft_done.store(true, std::memory_order_release);
        req_ = nullptr;
    }
}

// The token after the root became certain. If the draft had not guessed it, it makes the node now, to name it.
void draft_worker::commit(token_id token) {
    const int32_t i = tree_.child(0, token);
    cache_.re_root(tree_, std::max(i, 0), pos_of(std::max(i, 0)));
    text_.push_back(token);
    readable_ = readable_ && token < model_.n_vocab();
    if (i >= 0) {
        tree_.re_root(i);
    } else {
        const node_id up = tree_.root().id;
        tree_.reset(++n_ids_, token);
        wires_.nodes.push({.guess = false, .slot = req_->slot, .id = n_ids_, .parent = up, .token = token});
    }
    cache_.prune(tree_);
}

void draft_worker::apply(const verdict_msg & v) {
    const int32_t i = v.accepted == no_node ? 0 : tree_.find(v.accepted);
    if (i < 0) {
        throw std::runtime_error("the draft lost step with the target: a verdict names a node that was never sent");
    }
    cache_.re_root(tree_, i, pos_of(i));
    tree_.path_to(i, text_);
    tree_.re_root(i);
    commit(v.token);
    take_orders(v);
}

void draft_worker::pause() {
    paused_ = true;
    wires_.nodes.push({.what = node_msg::kind::pause, .slot = req_->slot, .parent = tree_.root().id});
}

void draft_worker::fail(const std::string & why) noexcept {
    if (req_ == nullptr) {
        return;
    }
    try {
        req_->draft_error = why;
        if (!cache_.clear()) { // unknown after a failure
            req_->draft_error += "; its cache could not be cleared";
        }
    } catch (...) {
        // no memory for the reason: the failure is told all the same
    }
    paused_ = true;
    wires_.nodes.push({.what = node_msg::kind::failed, .slot = req_->slot, .id = req_->id});
    end();
}

} // namespace duo
