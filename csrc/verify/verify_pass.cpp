// The pass itself: evaluate, walk, emit. The loop around it is in verify_worker.cpp, the choices in verify_choice.cpp.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "verify_worker.h"

namespace duo {

namespace {
constexpr int32_t n_telling     = 16;   // a prompt with fewer rows says too little about the time of a row
constexpr int64_t wake_every_us = 5000; // nobody notices that tokens are so late
} // namespace

// The slot's rows of the pass: the next n_read rows of its prompt; or, if that is 0, what is missing of the text, what
// was accepted beside the best path, the root, and the chosen nodes.
void verify_worker::set_rows(verify_slot & s, size_t n_read) {
    const pass_tree & tree     = s.text.tree();
    const auto &      tokens   = s.text.tokens();
    const auto        n_before = tokens.size();
    s.n_read                   = n_read;
    s.i_first                  = rows_.size();
    s.i_root                   = rows_.size() + s.n_missing() - 1;
    s.n_before                 = s.cached.size();
    const int32_t n_branches   = n_read > 0 ? 1 : tree.n_branches();
    const size_t  end          = n_read > 0 ? s.cached.size() + n_read : n_before;
    for (size_t pos = s.cached.size(); pos < end; ++pos) {
        rows_.push_back({.token      = tokens[pos],
                         .pos        = int32_t(pos),
                         .branch     = s.first_branch,
                         .n_branches = n_branches,
                         .output     = pos + 1 == n_before});
    }
    if (n_read > 0) {
        return;
    }
    for (const auto & r : tree.rows()) {
        const auto & nd = tree.nodes()[size_t(r.i_node)];
        rows_.push_back({.token      = nd.token,
                         .pos        = int32_t(n_before) - 1 + nd.depth,
                         .branch     = s.first_branch + r.branch,
                         .n_branches = r.n_branches,
                         .output     = true});
    }
}

// Evaluates rows_, which are those of the slots of pass_. False: nothing was evaluated, because the only text was
// cancelled.
bool verify_worker::evaluate(int32_t n_threads) {
    const int64_t t_forks = now_us();
    bool          forked  = false;
    for (const verify_slot * s : pass_) {
        for (int32_t b = 1; s->n_read == 0 && b < s->text.tree().n_branches(); ++b) {
            model_.fork(s->first_branch, s->first_branch + b, int32_t(s->cached.size()));
            forked = true;
        }
    }
    model_.use_threads(n_threads);
    const decode_status status = timed_decode();
    // The walk needs only the candidates, so side branches are dropped before it.
    for (const verify_slot * s : pass_) {
        for (int32_t b = 1; s->n_read == 0 && b < s->text.tree().n_branches(); ++b) {
            model_.rollback(s->first_branch + b, 0);
        }
    }
    if (status == decode_status::stopped) {
        return false;
    }
    passes_.count(rows_.size(), pass_.size());
    did_ = did_.value_or(pass_counts::reading);
    // Making and dropping a tree's branches is outside the pass, but it is part of its cost.
    measure(n_threads, forked ? t_pass0_ - t_forks + now_us() - t_pass1_ : 0);
    for (verify_slot * s : pass_) {
        on_evaluated(*s);
    }
    // Takes what the draft has prepared meanwhile, so that a hit is recognised and its subtree can be planned with.
    take_nodes();
    return true;
}

decode_status verify_worker::timed_decode() {
    t_pass0_ = now_us();
    wires_.verify_busy.begin(t_pass0_);
    const auto book = [&] {
        t_pass1_ = now_us();
        wires_.verify_busy.end(t_pass1_);
        for (verify_slot * s : pass_) {
            s->text.count_busy(t_pass1_ - t_pass0_);
        }
    };
    try {
        const decode_status status =
            model_.decode(rows_, pass_.size() == 1 ? pass_.front()->text.req().cancelled : never_stop);
        book();
        return status;
    } catch (...) {
        book(); // or the clock would run on
        throw;
    }
}

// Passes with rows of prompts are not typical.
void verify_worker::measure(int32_t n_threads, int64_t branches_us) {
    const int64_t us = t_pass1_ - t_pass0_;
    if (us <= 0 || std::any_of(pass_.begin(), pass_.end(),
                               [](const verify_slot * s) { return s->n_read > 0 || s->text.stats().n_passes == 0; })) {
        return;
    }
    // A pass on a part of the cores counts as beside the draft, whatever the draft did.
    const int64_t beside = n_threads > 0 ? us : wires_.draft_busy.at(t_pass1_) - wires_.draft_busy.at(t_pass0_);
    planner_.profile().on_pass(int32_t(rows_.size()), us + branches_us, double(beside) / double(us));
}

// The rows of the slot are in the cache now.
void verify_worker::on_evaluated(verify_slot & s) {
    const auto & tokens = s.text.tokens();
    if (s.n_read > 0) {
        const auto from = tokens.begin() + std::ptrdiff_t(s.cached.size());
        s.cached.insert(s.cached.end(), from, from + std::ptrdiff_t(s.n_read));
        mark_state(s);
        send_features(s);
        if (wires_.tracing) {
            wires_.verify_trace.try_push({.what   = trace_event::kind::prompt,
                                          .slot   = s.index,
                                          .n_rows = int32_t(s.n_read),
                                          .t0_us  = t_pass0_,
                                          .t1_us  = t_pass1_});
        }
        return;
    }
    if (s.text.stats().n_passes == 0) {
        on_prompt(s);
    }
    const pass_tree & tree = s.text.tree();
    s.cached               = tokens;
    for (size_t i = 0; i < tree.rows().size() && tree.rows()[i].branch == 0; ++i) {
        s.cached.push_back(tree.at_row(int32_t(i)).token);
    }
    drop_unheld(s);
}

void verify_worker::on_prompt(verify_slot & s) {
    verify_stats & st   = s.text.stats();
    st.prompt_us        = t_pass1_ - st.t_begin_us;
    const int32_t n_new = st.n_prompt - st.n_prompt_cached;
    if (n_new >= n_telling && active_.size() == 1) {
        row_us_ = double(st.prompt_us) / n_new;
    }
}

// After evaluate(): the text grows as far as the target agrees with the tree.
void verify_worker::finish_pass(verify_slot & s, stance now) {
    const verify_stats before   = s.text.stats();
    const int32_t      depth    = s.text.tree().depth();
    const size_t       n_before = s.text.tokens().size();
    did_                        = size_t(now);
    walk(s, now);
    if (s.text.finish() != finish_reason::none) {
        send_features(s); // the next text may begin with this one
    }
    trace_pass(s, before, now, depth);
    if (s.text.finish() == finish_reason::none) {
        trim_cache(s, n_before);
    }
}

// False: a guess or another text has spoiled the row of a token that counts, so the text must be evaluated again alone.
// What the walk had accepted before is committed.
bool verify_worker::finish_unless_spoiled(verify_slot & s, stance now) {
    const size_t n_text = s.text.tokens().size();
    try {
        finish_pass(s, now);
        return true;
    } catch (const nan_error &) {
        if (s.text.tree().rows().empty() && slots_.size() == 1) {
            throw;
        }
    }
    s.n_good = s.n_before;
    if (s.text.end_walk_at_row()) {
        commit(s);
        trim_cache(s, n_text);
        s.n_good = s.cached.size();
    }
    return false;
}

void verify_worker::trace_pass(verify_slot & s, const verify_stats & before, stance now, int32_t depth) {
    if (!wires_.tracing) {
        return;
    }
    const verify_stats & st = s.text.stats();
    wires_.verify_trace.try_push({.what       = trace_event::kind::verify,
                                  .hit        = st.n_hits > before.n_hits,
                                  .slot       = s.index,
                                  .n_rows     = int32_t(rows_.size()),
                                  .n_drafted  = int32_t(s.text.tree().rows().size()),
                                  .n_accepted = st.n_accepted - before.n_accepted,
                                  .depth      = depth,
                                  .n_branch   = alone_ != nullptr ? planner_.n_branch() : orders_.n_branch,
                                  .expected   = float(s.expected),
                                  .stance_now = now,
                                  .t0_us      = t_pass0_,
                                  .t1_us      = t_pass1_});
}

// Keeps only the text in the cache. Nodes accepted beside the best path are not kept: their rows come after a gap, and
// attention adds in the order of the cells, so results would not be bit-equal. The next pass evaluates them again.
void verify_worker::trim_cache(verify_slot & s, size_t n_before) {
    const auto n_on_path = s.text.n_accepted_on_best_path();
    const auto n_kept    = n_before + size_t(n_on_path);
    s.text.stats().n_side += n_on_path < s.text.n_accepted() ? 1 : 0;
    if (n_kept < s.cached.size()) {
        const auto n = size_t(model_.take_back(s.first_branch, int32_t(n_kept)));
        if (n > n_kept || n + rows_.size() < s.cached.size()) { // only this pass may be evaluated again
            throw error(error_kind::bad_value, "the target's cache cannot be rolled back; run without a draft");
        }
        s.cached.resize(n);
    }
}

// Follows the tree as far as the target agrees, then takes the target's own token; tells the draft.
void verify_worker::walk(verify_slot & s, stance now) {
    s.text.begin_walk(now);
    choose_block(s);
    for (;;) {
        if (s.text.req().hook && s.text.cancelled()) {
            return; // a hook may be slow
        }
        const int32_t i_logits = int32_t(s.i_root) + 1 + s.text.row();
        const auto    chosen   = choose(s, i_logits);
        if (!chosen.has_value()) {
            s.text.finish(finish_reason::stop);
            return;
        }
        const bool from_draft = s.text.step(*chosen, guesses_of(s));
        emit(s, from_draft, i_logits);
        if (s.text.finish() != finish_reason::none) {
            return;
        }
        if (!from_draft) {
            commit(s);
            return;
        }
    }
}

void verify_worker::commit(verify_slot & s) {
    const int64_t now = now_us();
    if (const auto us = s.text.us_since_verdict(now); us.has_value() && alone_ == &s) {
        planner_.on_verdict(s.text.n_new(), s.expected, *us, s.text.drafting());
    }
    send_features(s);
    verdicts_.clear();
    s.text.commit(now, verdicts_);
    if (s.text.was_lost()) {
        wires_.useless[size_t(line_of(s))].store(true, std::memory_order_relaxed);
    }
    for (const verdict_msg & v : verdicts_) {
        tell_draft(s, v);
    }
    late_chunks_ = true;
    if (alone_ == &s && (t_pass1_ - t_pass0_ > wake_every_us || now - t_woken_ > wake_every_us)) {
        wake_reader();
    }
}

// To wake the reader takes time. Between short passes it is not woken each time.
void verify_worker::wake_reader() {
    if (std::exchange(late_chunks_, false)) {
        wires_.chunks.wake();
        t_woken_ = now_us();
    }
}

// The last committed token on its way to the reader.
void verify_worker::emit(verify_slot & s, bool from_draft, int32_t i_row) {
    chunk_msg     chunk = s.text.make_chunk(from_draft);
    const int32_t n     = s.text.req().n_logprobs;
    if (n >= 0) {
        best_.resize(size_t(n));
        chunk.logp = model_.logprobs(i_row, chunk.token, best_);
    }
    wires_.chunks.push_quiet(chunk); // the reader is woken once for all of a pass, after the draft
    if (n >= 0) {
        for (const candidate & c : best_) {
            wires_.chunks.push_quiet(
                {.what = chunk_msg::kind::logprob, .slot = chunk.slot, .token = c.token, .logp = c.logp});
        }
    }
}

} // namespace duo
