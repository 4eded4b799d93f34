// Several texts in one pass. A text whose guesses are not ready gives one row. A long prompt is read in pieces beside
// the texts that are written.
#include <algorithm>

#include "base/error.h"
#include "verify_worker.h"

namespace duo {

void verify_worker::work_together() {
    alone_ = nullptr;
    rows_.clear();
    begin_drafts_together();
    order_drafts();
    if (!plan_together()) {
        return; // a text has come or is to end
    }
    if (pass_.empty()) { // those whose turn it is were parked
        return;
    }
    for (verify_slot * s : pass_) {
        set_rows(*s, s->n_read);
    }
    const auto plans = pass_;
    if (!evaluate(0)) {
        return;
    }
    measure_piece();
    std::vector<verify_slot *> spoiled;
    int32_t                    n_tokens = 0;
    bool                       usual    = true; // a pass without prompts
    const stance               now      = pool_.stance_now();
    for (verify_slot * s : plans) {
        usual = usual && s->n_read == 0 && s->text.stats().n_passes > 0 &&
                (s->text.draft_contact() != contact::owed || !draft_wanted(s->text.req()));
        if (s->n_read > 0) {
            continue;
        }
        const int32_t n_before = s->text.stats().n_predicted;
        try {
            if (!finish_unless_spoiled(*s, now)) {
                spoiled.push_back(s);
            }
            n_tokens += s->text.stats().n_predicted - n_before;
        } catch (...) {
            fail(*s, failure_caught());
        }
    }
    for (verify_slot * s : spoiled) {
        usual = false;
        try {
            repair(*s);
        } catch (...) {
            fail(*s, failure_caught());
        }
    }
    wake_others();
    if (active_.empty()) { // all have failed, and a reader may look at the measurements now
        return;
    }
    const int64_t t = now_us();
    if (usual && t_together_ > 0 && n_tokens > 0) {
        pool_.on_pass(planner_.profile(), n_tokens, double(t - t_together_), drafts_read_);
    }
    t_together_ = t;
}

// The pass failed: the text's rows alone, without drafted ones. n_good: leading rows of the cache that can be kept.
void verify_worker::work_again(verify_slot & s, size_t n_good) {
    const size_t n_kept = std::min(n_good, s.text.tokens().size() - 1);
    for (int32_t b = 0; b < n_branches_; ++b) {
        const auto n = size_t(model_.take_back(s.first_branch + b, b == 0 ? int32_t(n_kept) : 0));
        if (n > (b == 0 ? n_kept : 0)) {
            throw error("the target's cache could not be cleared");
        }
        s.cached.resize(b == 0 ? n : s.cached.size());
    }
    s.text.tree().choose({}, 0, 1);
    pass_.assign(1, &s);
    const size_t n_piece = std::min(s.n_read, s.n_missing() - 1);
    do { // a recurrent state may have gone back to the text's begin
        rows_.clear();
        set_rows(s, n_piece > 0 ? n_piece : n_to_read(s));
        if (!evaluate(0)) {
            return;
        }
    } while (s.n_read > 0 && n_piece == 0);
    if (s.n_read == 0) {
        finish_pass(s, stance::rest);
        wake_others();
    }
}

// After finish_unless_spoiled(). Rows of the text may have been spoiled in earlier passes, too, while its prompt was
// read beside other texts.
void verify_worker::repair(verify_slot & s) {
    try {
        work_again(s, s.n_good);
    } catch (const nan_error &) {
        if (slots_.size() == 1) {
            throw;
        }
        work_again(s, 0);
    }
}

void verify_worker::order_drafts() {
    pool_wishes wishes{.sync = true, .no_waits = wires_.on_host};
    for (const verify_slot * s : active_) {
        if (draft_wanted(s->text.req())) {
            wishes.kind   = wishes.n_most == 0 ? s->text.req().sampling.kind() : wishes.kind;
            wishes.n_most = n_draft_cap;
            wishes.sync   = wishes.sync && s->text.req().plan.mode == run_mode::sync;
            // On a host one client must not decide for the others.
            wishes.always = wishes.always || (!wires_.on_host && s->text.req().plan.always);
        }
    }
    orders_ = pool_.orders(active_.size(), planner_.profile(), wishes);
    // Drafts that were told to work would otherwise do so beside the next pass.
    for (verify_slot * s : active_) {
        if (orders_.n_ahead == 0 && s->n_ahead > 0 && s->text.drafting()) {
            tell_draft(*s, {.what = verdict_msg::kind::orders});
        }
    }
}

// A draft begins when its text has its first token: until then, all cores read the prompt.
void verify_worker::begin_drafts_together() {
    drafts_read_ = false;
    for (verify_slot * s : active_) {
        const contact c = s->text.draft_contact();
        if (c == contact::returned || (c == contact::owed && s->text.stats().n_passes > 0 && orders_.n_ahead > 0)) {
            begin_draft_in_mid_text(*s, planner_.draft_may_skip() ? n_window_some : n_window_auto);
            drafts_read_ = true;
        }
    }
}

// Says for each text which rows it gives: a piece of its prompt, or the root and drafted nodes. False: a text has come
// or was cancelled, so the plan would be stale.
bool verify_worker::plan_together() {
    plan_reading();
    keep_one_width();
    make_room(n_base_rows());
    std::erase_if(pass_, [](const verify_slot * s) { return s->parked; });
    const size_t n_used = n_base_rows();
    size_t       n_free = size_t(model_.n_cells()) - n_used;
    for (const verify_slot & s : slots_) {
        n_free -= s.cached.size();
    }
    const auto n_rows = int32_t(std::min({n_free, size_t(model_.n_batch()) - n_used, size_t(n_draft_cap),
                                          size_t(n_rows_cap) - std::min(size_t(n_rows_cap), n_used)}));
    int64_t    t0     = 0;
    for (int32_t i = 0;; ++i) {
        const uint32_t heard = wires_.verify_bell.listen();
        take_nodes();
        const int64_t wait_us = share_rows(n_rows, i < n_waits_most);
        if (wait_us <= 0) {
            break;
        }
        if (take_requests() || any_cancelled()) {
            return false;
        }
        const int64_t now = now_us();
        t0                = t0 == 0 ? now : t0;
        if (!wires_.verify_bell.wait(heard, now + wait_us)) {
            for (verify_slot * s : pass_) {
                if (s->text.draft_may_grow()) {
                    s->text.set_contact(contact::late);
                }
            }
        }
    }
    for (verify_slot * s : pass_) {
        if (t0 != 0 && s->text.drafting()) {
            count_wait(t0, *s);
        }
    }
    return true;
}

// Shares n drafted rows among the texts. > 0: the pass should wait so many microseconds.
int64_t verify_worker::share_rows(int32_t n_rows, bool may_wait) {
    shares_.clear();
    for (verify_slot * s : pass_) {
        if (s->n_read > 0) {
            shares_.push_back({.n_base = int32_t(s->n_read)});
            continue;
        }
        const plan_params & plan  = s->text.req().plan;
        const bool          fixed = plan.always || !plan.tree.empty() || plan.use == tree_use::dynamic;
        const bool          begun = s->text.stats().n_passes > 0;
        s->text.grow_tree(known_of(*s), fixed ? 0.0 : 0.01, n_room(*s));
        const int32_t n_most = std::min(n_verify_most(*s), std::max(0, model_.n_undo_together(int32_t(pass_.size()))));
        shares_.push_back({.tree     = &s->text.tree(),
                           .n_base   = int32_t(s->n_missing()),
                           .n_most   = std::max(0, std::min(n_room(*s), n_most)),
                           .n_min    = plan.n_min,
                           .fixed    = fixed,
                           .wide     = plan.use == tree_use::dynamic || !plan.tree.empty(),
                           .drafting = s->text.drafting(),
                           .growing  = may_wait && begun && s->text.draft_may_grow() && !s->text.cancelled(),
                           .away_us  = away_us(*s),
                           .n_wait   = std::min({n_most, s->n_ahead, fixed ? n_most : orders_.n_wait}),
                           .n_branch = n_branches_});
    }
    const int64_t wait_us = pool_.next(shares_, planner_.profile(), n_rows);
    for (size_t i = 0; i < shares_.size(); ++i) {
        pass_[i]->expected = shares_[i].expected;
    }
    return wait_us;
}

int32_t verify_worker::n_verify_most(const verify_slot & s) const {
    return n_drafted_most(s.text.req().plan, s.text.shape(), n_draft_cap);
}

bool verify_worker::any_cancelled() const {
    return std::any_of(active_.begin(), active_.end(), [](verify_slot * s) { return s->text.cancelled(); });
}

} // namespace duo
