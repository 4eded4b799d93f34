#include "token_walk.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace duo {

namespace {
constexpr int64_t wake_every_us = 5000; // nobody notices that tokens are so late
} // namespace

void token_walk::finish(verify_slot & s, stance now) {
    const verify_stats before   = s.text.req().stats;
    const int32_t      depth    = s.text.guesses().tree().depth();
    const size_t       n_before = s.text.context().tokens().size();
    walk(s, now);
    if (s.text.finish() != finish_reason::none) {
        drafts_.send_features(s); // the next text may begin with this one
    }
    trace(s, before, now, depth);
    if (s.text.finish() == finish_reason::none) {
        trim(s, n_before);
    }
}

bool token_walk::finish_unless_spoiled(verify_slot & s, stance now) {
    const size_t n_text = s.text.context().tokens().size();
    try {
        finish(s, now);
        return true;
    } catch (const nan_error &) {
        if (s.text.guesses().tree().rows().empty() && cache_.slots().size() == 1) {
            throw;
        }
    }
    s.n_good = s.n_before;
    if (s.text.end_walk_at_row()) {
        commit(s);
        trim(s, n_text);
        s.n_good = s.cached.size();
    }
    return false;
}

void token_walk::trace(verify_slot & s, const verify_stats & before, stance now, int32_t depth) {
    if (!wires_.tracing) {
        return;
    }
    const verify_stats & st = s.text.req().stats;
    wires_.verify_trace.try_push({.what       = trace_event::kind::verify,
                                  .hit        = st.n_hits > before.n_hits,
                                  .slot       = s.index,
                                  .n_rows     = int32_t(pass_.n_rows()),
                                  .n_drafted  = int32_t(s.text.guesses().tree().rows().size()),
                                  .n_accepted = st.n_accepted - before.n_accepted,
                                  .depth      = depth,
                                  .n_branch   = plans_.wishes_of(s).n_branch,
                                  .expected   = float(s.expected),
                                  .stance_now = now,
                                  .t0_us      = pass_.t0(),
                                  .t1_us      = pass_.t1()});
}

// Keeps only the text in the cache. Nodes accepted beside the best path are not kept: their rows come after a gap, and
// attention adds in the order of the cells, so results would not be bit-equal. The next pass evaluates them again.
void token_walk::trim(verify_slot & s, size_t n_before) {
    const auto & accepted  = s.text.accepted();
    const auto   n_on_path = std::ranges::count_if(
        accepted, [&](int32_t i) { return s.text.guesses().tree().rows()[size_t(i)].branch == 0; });
    s.text.req().stats.n_side += n_on_path < std::ssize(accepted) ? 1 : 0;
    cache_.trim(s, n_before + size_t(n_on_path), pass_.n_rows()); // only this pass may be evaluated again
}

// Follows the tree as far as the target agrees, then takes the target's own token; tells the draft.
void token_walk::walk(verify_slot & s, stance now) {
    s.text.begin_walk(now);
    chooser_.begin_walk(s.text, int32_t(s.i_root));
    for (;;) {
        if (s.text.req().hook && s.text.cancelled()) {
            return; // a hook may be slow
        }
        const int32_t i_logits = int32_t(s.i_root) + 1 + s.text.row();
        const auto    chosen   = chooser_.choose(s.text, i_logits);
        if (!chosen.has_value()) {
            s.text.finish(finish_reason::stop);
            return;
        }
        const size_t n_before   = s.text.tokens().size();
        const bool   from_draft = s.text.step(*chosen, plans_.guesses_of(s));
        emit(s, from_draft, i_logits, n_before);
        if (s.text.finish() != finish_reason::none) {
            return;
        }
        if (!from_draft) {
            commit(s);
            return;
        }
    }
}

void token_walk::commit(verify_slot & s) {
    const int64_t now = now_us();
    if (const auto us = s.text.us_since_verdict(now); us.has_value() && plans_.texts().is_alone(s)) {
        plans_.on_verdict(s, double(*us)); // first: the verdict carries what the planner wants now
    }
    drafts_.send_features(s);
    verdicts_.clear();
    s.text.commit(now, verdicts_);
    if (s.text.guesses().was_lost()) {
        wires_.signals[size_t(s.message_slot)].step_obsolete.store(true, std::memory_order_relaxed);
    }
    for (const verdict_msg & v : verdicts_) {
        drafts_.tell(s, v);
    }
    late_chunks_ = true;
    if (plans_.texts().is_alone(s) && (pass_.us() > wake_every_us || now - t_woken_ > wake_every_us)) {
        wake_reader();
    }
}

void token_walk::wake_all() {
    drafts_.wake();
    late_chunks_ = true;
    wake_reader();
}

// To wake the reader takes time. Between short passes it is not woken each time.
void token_walk::wake_reader() {
    if (std::exchange(late_chunks_, false)) {
        wires_.chunks.wake();
        t_woken_ = now_us();
    }
}

// The last committed token on its way to the reader. n_before: tokens before it.
void token_walk::emit(verify_slot & s, bool from_draft, int32_t i_row, size_t n_before) {
    chunk_msg     chunk = s.text.make_chunk(from_draft);
    const int32_t n     = s.text.req().n_logprobs;
    if (n >= 0) {
        best_.resize(size_t(n));
        look_up(s.text.req(), i_row, std::span(s.text.tokens()).first(n_before), chunk);
    }
    wires_.chunks.push_quiet(chunk); // the reader is woken once for all of a pass, after the draft
    if (n >= 0) {
        for (const candidate & c : best_) {
            wires_.chunks.push_quiet(
                {.what = chunk_msg::kind::logprob, .slot = chunk.slot, .token = c.token, .logp = c.logp});
        }
    }
}

// The log-probabilities of the chunk's token and of the best ones. Filters may leave fewer: the others are no_token.
void token_walk::look_up(const request & req, int32_t i_row, std::span<const token_id> text, chunk_msg & chunk) {
    if (!req.filtered_logprobs) {
        chunk.logp = model_.logprobs(i_row, chunk.token, best_);
        return;
    }
    chances_.clear();
    if (!req.sampling.greedy()) {
        model_.chances(i_row, req.sampling, text, chances_);
    }
    if (chances_.empty()) { // greedy, or the end of a grammar's text
        chances_.push_back({.token = chunk.token, .logp = 0.0f});
    }
    constexpr candidate none{.token = no_token, .logp = -std::numeric_limits<float>::infinity()};
    std::fill(best_.begin(), best_.end(), none);
    std::copy_n(chances_.begin(), std::min(best_.size(), chances_.size()), best_.begin());
    const auto mine = std::ranges::find(chances_, chunk.token, &candidate::token);
    chunk.logp      = mine == chances_.end() ? none.logp : mine->logp;
}

} // namespace duo
