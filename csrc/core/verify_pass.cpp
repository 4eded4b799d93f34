// The pass itself: verify, walk, emit. The loop around it is in verify_worker.cpp.
#include <algorithm>

#include "verify_worker.h"

namespace duo {

// One target pass: what is left of the prompt, the root, and the chain below it.
void verify_worker::verify(const plan & p) {
    mirror_.tree().chain(size_t(std::max(0, p.n_verify)), chain_);
    if (int32_t(chain_.size()) < req_->plan.n_min) {
        chain_.clear();
    }
    const auto i_root = int32_t(text_.size() - 1 - cached_.size());
    rows_.clear();
    for (size_t pos = cached_.size(); pos < text_.size(); ++pos) {
        rows_.push_back({.token = text_[pos], .pos = int32_t(pos), .output = pos + 1 == text_.size()});
    }
    for (const int32_t i : chain_) {
        const auto & nd = mirror_.tree().at(i);
        rows_.push_back({.token = nd.token, .pos = n_text() - 1 + nd.depth, .output = true});
    }

    int64_t             t0     = 0;
    int64_t             t1     = 0;
    const decode_status status = timed_decode(t0, t1);
    if (status == decode_status::stopped) {
        return;
    }
    if (req_->stats.n_passes == 0) {
        req_->stats.prompt_us = t1 - req_->stats.t_begin_us;
    }
    if (i_root == 0) {
        planner_.on_pass(int32_t(rows_.size()), t1 - t0);
    }
    cached_.assign(text_.begin(), text_.end());
    for (const int32_t i : chain_) {
        cached_.push_back(mirror_.tree().at(i).token);
    }

    take_nodes(); // what the draft prepared meanwhile: a hit is known as one, and its subtree is there for the next
                  // plan
    const verify_stats before = req_->stats;
    walk(i_root);

    if (wires_.tracing) {
        wires_.verify_trace.try_push({.what       = trace_event::kind::verify,
                                      .hit        = req_->stats.n_hits > before.n_hits,
                                      .slot       = req_->slot,
                                      .n_rows     = int32_t(rows_.size()),
                                      .n_drafted  = int32_t(chain_.size()),
                                      .n_accepted = req_->stats.n_accepted - before.n_accepted,
                                      .n_planned  = p.n_verify,
                                      .t0_us      = t0,
                                      .t1_us      = t1});
    }
    if (finish_ == finish_reason::none && n_text() - 1 < int32_t(cached_.size())) {
        if (!model_.rollback(0, n_text() - 1)) {
            throw std::runtime_error("the target's cache cannot be rolled back; run without a draft");
        }
        cached_.resize(text_.size() - 1);
    }
}

// Follows the chain as far as the target agrees, then takes the target's own token; tells the draft.
void verify_worker::walk(int32_t i_first_row) {
    verify_stats & st = req_->stats;
    ++st.n_passes;
    st.n_verifications += chain_.empty() ? 0 : 1;
    st.n_drafted += int32_t(chain_.size());

    int32_t i_node = 0; // deepest accepted node
    for (size_t i = 0;; ++i) {
        candidate  chosen;
        const auto i_row = i_first_row + int32_t(i);
        if (model_.candidates(i_row, req_->sampling, text_, std::span(&chosen, 1)) != 1) {
            throw std::runtime_error("the filters left no candidate token");
        }
        const bool tested = i < chain_.size();
        const bool agrees = tested && mirror_.tree().at(chain_[i]).token == chosen.token;
        if (tested) {
            ++st.n_tested_at[i];
            planner_.on_accept(int32_t(i), agrees);
        } else if (const int32_t i_guess = mirror_.tree().first_child(i_node); i_guess >= 0) {
            // A guess that was there but not verified: keeps the acceptance measured while nothing is.
            planner_.on_accept(int32_t(i), mirror_.tree().at(i_guess).token == chosen.token);
        }
        if (agrees) {
            ++st.n_accepted;
            ++st.n_accepted_at[i];
        }
        text_.push_back(chosen.token);
        const bool more = emit(chosen.token, agrees, i_row);
        if (!more) {
            return; // the request is over; nobody needs the tree any more
        }
        if (agrees) {
            i_node = chain_[i];
            continue;
        }
        const node_id accepted = mirror_.name_of(i_node);
        st.n_hits += mirror_.commit(i_node, chosen.token, text_) ? 1 : 0;
        tell_draft({.slot = req_->slot, .accepted = accepted, .token = chosen.token, .n_ahead = planner_.look_ahead()});
        return;
    }
}

// One committed token on its way to the text. False: it was the last.
bool verify_worker::emit(token_id token, bool from_draft, int32_t i_row) {
    verify_stats & st = req_->stats;
    chunk_msg      chunk{.from_draft = from_draft, .slot = req_->slot, .token = token, .t_us = now_us()};
    if (++st.n_predicted == 1) {
        st.t_first_us = chunk.t_us;
    }
    size_t n_drop = 0;
    if (model_.is_end(token)) {
        chunk.hidden = true;
        finish_      = finish_reason::stop;
    } else {
        const auto r = stops_.add(model_.piece(token));
        chunk.n_hold = int32_t(r.stopped ? r.n_drop : r.n_hold);
        n_drop       = r.n_drop;
        if (r.stopped) {
            finish_ = finish_reason::stop;
        } else if (st.n_predicted == req_->n_predict || n_text() >= model_.n_ctx()) {
            finish_ = finish_reason::length;
        }
    }
    if (req_->n_logprobs >= 0) {
        best_.resize(size_t(req_->n_logprobs));
        chunk.logp = model_.logprobs(i_row, token, best_);
    }
    wires_.chunks.push(chunk);
    if (req_->n_logprobs >= 0) {
        for (const candidate & c : best_) {
            wires_.chunks.push(
                {.what = chunk_msg::kind::logprob, .slot = req_->slot, .token = c.token, .logp = c.logp});
        }
    }
    if (finish_ == finish_reason::none) {
        return true;
    }
    n_drop_ = int32_t(n_drop);
    return false;
}

} // namespace duo
