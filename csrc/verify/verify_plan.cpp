// A text that is alone: reads its prompt, and plans its passes. It takes the tree as it is known now, asks the planner,
// and waits for the draft if that pays.
#include <algorithm>

#include "verify_worker.h"

namespace duo {

namespace {
constexpr size_t n_piece = 512; // rows of a prompt in a pass, where another text may come
} // namespace

// Rows of a text that a pass reads before the one that verifies. 0: the next pass verifies.
size_t verify_worker::n_to_read(const verify_slot & s) const {
    const size_t n_batch = size_t(model_.n_batch());
    const bool   copy    = model_.undo() == undo_kind::copy; // what was right after a wrong guess is in the next pass
    const size_t n_last  = s.text.req().n_predict == 0 ? 1
                           : copy                      ? n_batch
                           : n_batch > n_draft_cap     ? n_batch - n_draft_cap
                                                       : 1;
    const size_t n_most  = slots_.size() > 1 ? std::min(n_batch, n_piece) : n_batch;
    const size_t n_mark  = n_to_mark(s);
    if (n_mark < s.n_missing()) {
        return std::min(n_mark, n_most);
    }
    const size_t n = s.n_missing() > std::min(n_last, n_most) ? std::min(n_most, s.n_missing() - 1) : 0;
    return n == 1 && copy ? 0 : n; // the model might not keep a single row
}

// The planner is for one text at a time.
void verify_worker::plan_alone(verify_slot & s) {
    if (alone_ == &s) {
        return;
    }
    const request & req    = s.text.req();
    plan_params     params = req.plan;
    params.has_model       = draft_wanted(req);
    params.kind            = req.sampling.kind();
    planner_.begin(params, n_branches_, model_.n_undo(), model_.undo() == undo_kind::copy);
    alone_ = &s;
}

void verify_worker::work_alone(verify_slot & s) {
    plan_alone(s);
    pass_.assign(1, &s);
    rows_.clear();
    if (const size_t n = n_to_read(s); n > 0) {
        model_.use_threads(0);
        make_room(n);
        set_rows(s, n);
        evaluate(0);
        return;
    }
    plan p = make_plan(s);
    if (active_.size() > 1 || s.text.cancelled()) {
        return; // another text has come
    }
    if (slots_.size() > 1) {
        make_room(s.n_missing() + s.text.tree().rows().size());
    }
    set_rows(s, 0);
    const stance stance_before = planner_.stance_now();
    s.expected                 = p.expected;
    if (evaluate(s.text.drafting() ? planner_.threads().target : 0)) {
        if (!finish_unless_spoiled(s, stance_before)) {
            repair(s);
        }
    }
}

plan verify_worker::make_plan(verify_slot & s) {
    constexpr int64_t reading_factor = 4;
    int64_t           t0             = 0;
    plan              p;
    for (int32_t i = 0;; ++i) {
        const uint32_t heard = wires_.verify_bell.listen();
        take_nodes();
        if (s.text.draft_contact() == contact::returned) {
            begin_draft_in_mid_text(s, n_window_auto);
        }
        begin_draft_if_it_pays(s);
        s.text.grow_tree(known_of(s), planner_.least_chance(), n_room(s));
        // While prompt rows are missing, evaluating them is better than waiting. Turn-taking waits before the first
        // pass if the whole prompt was cached.
        const auto n_new   = int32_t(s.n_missing());
        const bool begun   = s.text.stats().n_passes > 0 || (s.text.req().plan.mode == run_mode::sync && n_new == 1);
        const bool growing = s.text.draft_may_grow() && begun && !s.text.cancelled() && i < n_waits_most;
        p                  = planner_.next(s.text.tree(), {.n_room  = n_room(s),
                                                           .growing = growing,
                                                           .fresh   = !s.text.was_hit(),
                                                           .n_base  = n_new,
                                                           .away_us = away_us(s)});
        if (p.wait_us <= 0 || take_requests()) {
            break;
        }
        const int64_t now = now_us();
        t0                = t0 == 0 ? now : t0;
        // A draft that reads is waited for, because on the same cores both at once would take longer.
        const bool    reads   = s.text.draft_contact() == contact::reading;
        const int64_t wait_us = reads ? std::max(p.wait_us, reading_factor * s.reading_us) : p.wait_us;
        wake_reader();
        if (!wait_(wires_.verify_bell, heard, now + wait_us)) {
            s.text.set_contact(contact::late); // a draft that hangs costs one wait, not one for each token
        }
    }
    if (t0 != 0) {
        count_wait(t0, s);
    }
    return p;
}

// The wait since t0 was for this text's draft.
void verify_worker::count_wait(int64_t t0, verify_slot & s) {
    const int64_t t1 = now_us();
    s.text.count_wait(t1 - t0);
    if (wires_.tracing) {
        wires_.verify_trace.try_push({.what = trace_event::kind::wait, .slot = s.index, .t0_us = t0, .t1_us = t1});
    }
}

} // namespace duo
