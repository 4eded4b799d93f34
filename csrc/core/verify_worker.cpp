#include "verify_worker.h"

#include <algorithm>
#include <exception>

namespace duo {

void verify_worker::run() noexcept {
    for (;;) {
        const uint32_t heard = wires_.verify_bell.listen();
        const bool     last  = wires_.requests.closed();
        request *      req   = nullptr;
        if (wires_.requests.try_pop(req)) {
            serve(*req);
            continue;
        }
        if (last) {
            break;
        }
        take_nodes();  // nobody else empties the ring
        wires_.verify_bell.wait(heard);
    }
    wires_.verdicts.close();
    wires_.chunks.close();
}

void verify_worker::serve(request & req) {
    finish_reason why = finish_reason::error;
    try {
        begin(req);
        prompt();
        while (finish_ == finish_reason::none && !cancelled()) {
            take_nodes();
            const plan p = planner_.next(mirror_.tree().chain_length(), n_room(), draft_may_grow());
            wait_for_nodes(p);
            verify(p);
        }
        why = finish_ != finish_reason::none ? finish_ : finish_reason::cancelled;
    } catch (const std::exception & e) {
        req.error = e.what();
    } catch (...) {
        req.error = "the target model failed for an unknown reason";
    }
    end(why);
}

// Rows for drafted tokens that context, batch and n_predict leave beside the root.
int32_t verify_worker::n_room() const {
    const int32_t n = std::min(model_.n_ctx(), model_.n_batch() + int32_t(cached_.size())) - n_text();
    return req_->n_predict < 0 ? n : std::min(n, req_->n_predict - req_->stats.n_predicted - 1);
}

void verify_worker::begin(request & req) {
    req_    = &req;
    text_   = req.prompt;
    finish_ = finish_reason::none;
    mirror_.begin(req.id, text_);
    stops_.begin(req.stop);
    planner_.begin(req.plan);

    req.stats            = {};
    req.stats.t_begin_us = now_us();
    req.stats.n_prompt   = n_text();

    // The draft starts on its prompt while the target evaluates its own.
    drafting_ = false;
    if (has_draft_ && req.plan.mode != run_mode::plain) {
        if (end_owed_) {
            end_owed_ = !wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = req.slot});
        }
        if (!end_owed_) {
            req.draft_done.store(false, std::memory_order_relaxed);
            drafting_ = true;
            tell_draft({.what    = verdict_msg::kind::begin,
                        .slot    = req.slot,
                        .n_ahead = planner_.look_ahead(),
                        .req     = &req});
            if (!drafting_) {
                req.draft_done.store(true, std::memory_order_relaxed);
            }
        }
    }
}

// Evaluates the prompt but for the rows that fit into the first verification.
void verify_worker::prompt() {
    const size_t n_same =
        std::min(size_t(std::mismatch(cached_.begin(), cached_.end(), text_.begin(), text_.end()).first - cached_.begin()),
                 text_.size() - 1);
    if (n_same < cached_.size()) {
        const bool kept = model_.rollback(0, int32_t(n_same));
        if (!kept && !model_.rollback(0, 0)) {
            throw std::runtime_error("the target's cache could not be cleared");
        }
        cached_.resize(kept ? n_same : 0);
    }
    req_->stats.n_prompt_cached = int32_t(cached_.size());

    const size_t n_batch = size_t(model_.n_batch());
    const size_t n_last  = std::max<size_t>(1, n_batch > n_draft_cap ? n_batch - n_draft_cap : 1);
    while (text_.size() - cached_.size() > n_last && !cancelled()) {
        const size_t n = std::min(n_batch, text_.size() - cached_.size() - 1);
        rows_.clear();
        for (size_t pos = cached_.size(); pos < cached_.size() + n; ++pos) {
            rows_.push_back({.token = text_[pos], .pos = int32_t(pos)});
        }
        const int64_t t0 = now_us();
        wires_.verify_busy.begin(t0);
        const decode_status status = model_.decode(rows_, req_->cancelled);
        const int64_t       t1     = now_us();
        wires_.verify_busy.end(t1);
        req_->stats.busy_us += t1 - t0;
        if (wires_.tracing) {
            wires_.verify_trace.try_push(
                {.what = trace_event::kind::prompt, .slot = req_->slot, .n_rows = int32_t(n), .t0_us = t0, .t1_us = t1});
        }
        if (status == decode_status::stopped) {
            return;
        }
        cached_.insert(cached_.end(), text_.begin() + std::ptrdiff_t(cached_.size()),
                       text_.begin() + std::ptrdiff_t(cached_.size() + n));
    }
}

void verify_worker::take_nodes() {
    node_msg msg;
    while (wires_.nodes.try_pop(msg)) {
        if (req_ == nullptr || !drafting_ || msg.slot != req_->slot) {
            continue;
        }
        switch (msg.what) {
            case node_msg::kind::node: {
                planner_.on_step(msg.step_us);
                const auto what = mirror_.insert(msg, text_);
                if (msg.guess && (what == mirror_tree::news::named_right || what == mirror_tree::news::guess_wrong)) {
                    planner_.on_late_guess(what == mirror_tree::news::named_right);
                }
                break;
            }
            case node_msg::kind::pause:
                mirror_.pause(msg.parent);
                break;
            case node_msg::kind::failed:
                if (msg.id == req_->id) {
                    drafting_     = false;
                    req_->warning = req_->draft_error;
                }
                break;
        }
    }
}

void verify_worker::wait_for_nodes(const plan & p) {
    // With prompt rows still to be evaluated there is better to do than to wait.
    if (p.wait_us <= 0 || text_.size() - cached_.size() > 1 || mirror_.tree().chain_length() >= p.n_verify || !draft_may_grow()) {
        return;
    }
    const int64_t t0       = now_us();
    const int64_t deadline = t0 + p.wait_us;
    while (mirror_.tree().chain_length() < p.n_verify && draft_may_grow() && !cancelled()) {
        const uint32_t heard = wires_.verify_bell.listen();
        take_nodes();
        if (mirror_.tree().chain_length() >= p.n_verify || !draft_may_grow() || cancelled()) {
            break;
        }
        if (!wires_.verify_bell.wait(heard, deadline)) {
            break;
        }
    }
    const int64_t t1 = now_us();
    req_->stats.wait_us += t1 - t0;
    if (wires_.tracing) {
        wires_.verify_trace.try_push(
            {.what = trace_event::kind::wait, .slot = req_->slot, .n_planned = p.n_verify, .t0_us = t0, .t1_us = t1});
    }
}

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

    const int64_t t0 = now_us();
    wires_.verify_busy.begin(t0);
    const decode_status status = model_.decode(rows_, req_->cancelled);
    const int64_t       t1     = now_us();
    wires_.verify_busy.end(t1);
    req_->stats.busy_us += t1 - t0;
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

    int32_t i_node = 0;  // deepest accepted node
    for (size_t i = 0;; ++i) {
        candidate  chosen;
        const auto i_row = i_first_row + int32_t(i);
        if (model_.candidates(i_row, req_->sampling, text_, std::span(&chosen, 1)) != 1) {
            throw std::runtime_error("the filters left no candidate token");
        }
        const bool tested = i < chain_.size();
        const bool agrees = tested && mirror_.tree().at(chain_[i]).token == chosen.token;
        if (tested) {
            ++st.n_drafted;
            ++st.n_tested_at[i];
            planner_.on_accept(int32_t(i), agrees);
        }
        if (agrees) {
            ++st.n_accepted;
            ++st.n_accepted_at[i];
        }
        text_.push_back(chosen.token);
        const bool more = emit(chosen.token, agrees, i_row);
        if (!more) {
            return;  // the request is over; nobody needs the tree any more
        }
        if (agrees) {
            i_node = chain_[i];
            continue;
        }
        // Behind a rejection the chain was in vain, but it was verified.
        for (size_t j = i + 1; j < chain_.size(); ++j) {
            ++st.n_drafted;
        }
        const node_id accepted = mirror_.name_of(i_node);
        st.n_hits += mirror_.commit(i_node, chosen.token, text_) ? 1 : 0;
        tell_draft({.slot     = req_->slot,
                    .accepted = accepted,
                    .token    = chosen.token,
                    .n_ahead  = planner_.look_ahead()});
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

void verify_worker::tell_draft(const verdict_msg & v) {
    // A draft that is thousands of verdicts behind is of no use to this text; waiting for it would be worse.
    if (drafting_ && !wires_.verdicts.try_push(v)) {
        drafting_     = false;
        req_->warning = "the draft fell too far behind; the text went on without it";
    }
}

void verify_worker::end(finish_reason why) {
    request & req = *req_;
    if (!req.draft_done.load(std::memory_order_acquire)) {
        end_owed_ = !wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = req.slot});
    }
    if (why == finish_reason::error) {
        cached_.clear();  // unknown after a failure
        try {
            model_.rollback(0, 0);
        } catch (...) {
            // the next request meets the same failure and reports it
        }
    }
    req.stats.t_end_us = now_us();
    wires_.chunks.push(
        {.what = chunk_msg::kind::end, .finish = why, .slot = req.slot, .n_drop = n_drop_, .t_us = req.stats.t_end_us});
    n_drop_ = 0;
    req_    = nullptr;
}

}  // namespace duo
