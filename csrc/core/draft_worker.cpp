#include "draft_worker.h"

#include <algorithm>
#include <cmath>
#include <exception>

namespace duo {

namespace {
constexpr size_t n_children = 1; // best children of an expanded node; more of them are the outcome tree's business

const std::atomic<bool> never_stop{false};
} // namespace

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
                n_ahead_ = v.n_ahead;
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

void draft_worker::begin(const request & req) {
    req_    = &req;
    paused_ = false;
    text_.assign(req.prompt.begin(), req.prompt.end() - 1);
    readable_ = std::all_of(text_.begin(), text_.end(), [this](token_id t) { return t < model_.n_vocab(); });
    tree_.reset(req.id, no_token);
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
    text_.push_back(token);
    readable_       = readable_ && token < model_.n_vocab();
    const int32_t i = tree_.child(0, token);
    if (i >= 0) {
        tree_.re_root(i);
        return;
    }
    const node_id up = tree_.root().id;
    tree_.reset(++n_ids_, token);
    wires_.nodes.push({.guess = false, .slot = req_->slot, .id = n_ids_, .parent = up, .token = token});
}

void draft_worker::apply(const verdict_msg & v) {
    const int32_t i = v.accepted == no_node ? 0 : tree_.find(v.accepted);
    if (i < 0) {
        throw std::runtime_error("the draft lost step with the target: a verdict names a node that was never sent");
    }
    tree_.path_to(i, text_);
    tree_.re_root(i);
    commit(v.token);
    n_ahead_ = v.n_ahead;
    paused_  = false;
}

void draft_worker::step() {
    int32_t      i_node = 0;
    const size_t n = tree_.frontier(n_ahead_, std::span(&i_node, 1), [this](token_id t) { return model_.is_end(t); });
    // A node's children stand one position further than the node: it must fit, and the target must be able to read it.
    const auto pos = int32_t(text_.size()) - 1 + (n == 0 ? 0 : tree_.at(i_node).depth);
    if (n == 0 || pos >= model_.n_ctx() || !readable_) {
        pause();
        return;
    }
    const int64_t t0      = now_us();
    const int64_t hidden0 = wires_.verify_busy.at(t0);
    wires_.draft_busy.begin(t0);
    bool typical = false;
    bool ready   = false;
    try {
        ready = evaluate(i_node, typical);
        if (ready) {
            children_.resize(n_children);
            children_.resize(size_t(model_.candidates(int32_t(rows_.size()) - 1, req_->sampling, path_, children_)));
        }
    } catch (...) {
        wires_.draft_busy.end(now_us());
        throw;
    }
    const int64_t t1 = now_us();
    wires_.draft_busy.end(t1);

    int32_t n_made = 0;
    int32_t depth  = 0; // of the nodes made
    if (ready) {
        tree_.mark_expanded(i_node);
        const node_id parent = tree_.at(i_node).id;
        depth                = tree_.at(i_node).depth + 1;
        for (const candidate & c : children_) {
            if (c.logp < std::log(std::max(req_->plan.p_min, 1e-30f))) {
                break;
            }
            tree_.insert(++n_ids_, parent, c.token, c.logp);
            wires_.nodes.push({.slot    = req_->slot,
                               .id      = n_ids_,
                               .parent  = parent,
                               .token   = c.token,
                               .logp    = c.logp,
                               .step_us = typical ? float(t1 - t0) : 0.0f});
            ++n_made;
        }
    }
    if (wires_.tracing) {
        wires_.draft_trace.try_push({.what   = ready && typical ? trace_event::kind::draft : trace_event::kind::prompt,
                                     .slot   = req_->slot,
                                     .n_rows = int32_t(rows_.size()),
                                     .n_drafted = n_made,
                                     .depth     = depth,
                                     .t0_us     = t0,
                                     .t1_us     = t1});
    }
    const auto add = [](std::atomic<int64_t> & x, int64_t d) {
        x.store(x.load(std::memory_order_relaxed) + d, std::memory_order_relaxed);
    };
    add(req_->draft.n_steps, 1);
    add(req_->draft.n_nodes, n_made);
    add(req_->draft.busy_us, t1 - t0);
    add(req_->draft.hidden_us, wires_.verify_busy.at(t1) - hidden0);
}

// Brings the cache to the path that ends in node i, one batch of it. True: the node's own row is the last of rows_;
// false: a long text has more batches to go, and there may be verdicts by now.
bool draft_worker::evaluate(int32_t i_node, bool & typical) {
    path_.assign(text_.begin(), text_.end());
    tree_.path_to(i_node, path_);

    // The last row must be evaluated even if its position is cached: its candidates are wanted.
    size_t n_same =
        size_t(std::mismatch(cached_.begin(), cached_.end(), path_.begin(), path_.end()).first - cached_.begin());
    n_same = std::min(n_same, path_.size() - 1);
    if (n_same < cached_.size()) {
        if (!model_.rollback(0, int32_t(n_same))) {
            throw std::runtime_error("the draft model's cache cannot be rolled back");
        }
        cached_.resize(n_same);
    }
    const size_t n = std::min(path_.size() - n_same, size_t(model_.n_batch()));
    rows_.clear();
    for (size_t i = 0; i < n; ++i) {
        const size_t pos = n_same + i;
        rows_.push_back({.token = path_[pos], .pos = int32_t(pos), .output = pos + 1 == path_.size()});
    }
    if (model_.decode(rows_, req_->cancelled) == decode_status::stopped) {
        return false;
    }
    typical = n <= 2;
    cached_.insert(cached_.end(), path_.begin() + std::ptrdiff_t(n_same), path_.begin() + std::ptrdiff_t(n_same + n));
    return cached_.size() == path_.size();
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
        cached_.clear(); // unknown after a failure
        if (!model_.rollback(0, 0)) {
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
