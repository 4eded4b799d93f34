// The passes over one text and over several. The loop is in verify_worker.cpp.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "verify_worker.h"

namespace duo {

namespace {
using state = draft_contact::state;

// Where the models take turns on the same cores, a draft that reads is waited for: both at once would take longer.
int64_t patience_us(const verify_slot & s, const planner & plans, int64_t now) {
    const bool turns = plans.worth().begins_late() && plans.stance_now() == stance::by_turn;
    return turns && s.draft.now() == state::reading ? s.read_by_us - now : 0;
}

// The wait since t0 was for this text's draft.
void count_wait(int64_t t0, verify_slot & s, wires & w) {
    const int64_t t1 = now_us();
    s.text.count_elsewhere(0, t1 - t0);
    if (w.tracing) {
        w.verify_trace.try_push({.what = trace_event::kind::wait, .slot = s.index, .t0_us = t0, .t1_us = t1});
    }
}
} // namespace

void verify_worker::work_alone(verify_slot & s) {
    plans_.begin_alone(s);
    pass_.begin(s);
    if (const size_t n = reading_.n_to_read(s); n > 0) {
        model_.use_threads(0);
        active_.make_room(n);
        pass_.set_rows(s, n);
        evaluate(0);
        return;
    }
    if (!plan_alone(s)) {
        return;
    }
    if (cache_.slots().size() > 1) {
        active_.make_room(s.n_missing() + s.text.guesses().tree().rows().size());
    }
    pass_.set_rows(s, 0);
    const stance now = plans_.plans().stance_now();
    if (evaluate(s.drafting() ? plans_.plans().threads().target : 0)) {
        clock_.is_for(now);
        if (!walk_.finish_unless_spoiled(s, now)) {
            repair(s);
        }
    }
}

// Takes the tree as it is known now, asks the planner, and waits for the draft if that pays. False: another text has
// come, or this one was cancelled.
bool verify_worker::plan_alone(verify_slot & s) {
    int64_t t0 = 0;
    s.n_read   = 0;
    for (int32_t i = 0;; ++i) {
        const uint32_t heard = wires_.verify_bell.listen();
        drafts_.take_nodes();
        if (s.draft.now() == state::returned) {
            drafts_.begin_in_mid_text(s, n_window_auto);
        }
        drafts_.begin_if_it_pays(s);
        const int64_t planned = plans_.next(pass_, n_draft_cap, i < n_waits_most);
        if (planned <= 0 || take_requests()) {
            break;
        }
        const int64_t now     = now_us();
        t0                    = t0 == 0 ? now : t0;
        const int64_t wait_us = std::max(planned, patience_us(s, plans_.plans(), now));
        walk_.wake_reader();
        if (!wires_.verify_bell.wait(heard, now + wait_us)) {
            s.draft.set(state::late); // a draft that hangs costs one wait, not one for each token
        }
    }
    if (t0 != 0) {
        count_wait(t0, s, wires_);
    }
    return active_.size() == 1 && !s.text.cancelled();
}

// A text whose guesses are not ready gives one row. A long prompt is read in pieces beside the texts that are written.
void verify_worker::work_together() {
    plans_.begin_together(active_.all());
    const bool drafts_read = drafts_.begin_in_company(active_.all());
    drafts_.send_to_rest(active_.all());
    if (!plan_together() || pass_.slots().empty()) {
        return; // a text has come or is to end, or those whose turn it is were parked
    }
    for (verify_slot * s : pass_.slots()) {
        pass_.set_rows(*s, s->n_read);
    }
    const auto slots = pass_.slots();
    if (!evaluate(0)) {
        return;
    }
    reading_.measure(pass_);
    std::vector<verify_slot *> spoiled;
    int32_t                    n_tokens = 0;
    double                     expected = 0.0;
    bool                       drafting = false;
    bool                       usual    = true; // a pass without prompts
    const stance               now      = plans_.plans().stance_now();
    for (verify_slot * s : slots) {
        usual = usual && s->n_read == 0 && s->text.req().stats.n_passes > 0 &&
                (s->draft.now() != state::owed || !s->for_draft);
        if (s->n_read > 0) {
            continue;
        }
        const int32_t n_before = s->text.req().stats.n_predicted;
        expected += s->expected;
        drafting = drafting || (s->drafting() && !s->told.spared);
        clock_.is_for(now);
        try {
            if (!walk_.finish_unless_spoiled(*s, now)) {
                spoiled.push_back(s);
            }
            n_tokens += s->text.req().stats.n_predicted - n_before;
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
    walk_.wake_all();
    if (active_.empty()) { // all have failed, and a reader may look at the measurements now
        return;
    }
    const int64_t t = now_us();
    if (t_together_ > 0 && n_tokens > 0 && (usual || plans_.drafts_rest())) {
        plans_.plans().on_pass({.n_tokens = n_tokens,
                                .expected = expected,
                                .us       = double(t - t_together_),
                                .drafting = drafting,
                                .usual    = usual && !drafts_read});
    }
    t_together_ = t;
}

// Says for each text which rows it gives: a piece of its prompt, or the root and drafted nodes. False: a text has come
// or was cancelled, so the plan would be stale.
bool verify_worker::plan_together() {
    reading_.fill(pass_, active_.all());
    active_.make_room(pass_.n_base_rows());
    std::erase_if(pass_.slots(), [](const verify_slot * s) { return s->parked.waits; });
    const size_t n_used = pass_.n_base_rows();
    const auto   n_rows =
        int32_t(std::min({cache_.n_free() - n_used, size_t(model_.facts().n_batch) - n_used, size_t(n_draft_cap),
                          size_t(n_rows_cap) - std::min(size_t(n_rows_cap), n_used)}));
    int64_t t0 = 0;
    for (int32_t i = 0;; ++i) {
        const uint32_t heard = wires_.verify_bell.listen();
        drafts_.take_nodes();
        const int64_t wait_us = plans_.next(pass_, n_rows, i < n_waits_most);
        if (wait_us <= 0) {
            break;
        }
        if (take_requests() ||
            std::ranges::any_of(active_.all(), [](verify_slot * s) { return s->text.cancelled(); })) {
            return false;
        }
        const int64_t now = now_us();
        t0                = t0 == 0 ? now : t0;
        if (!wires_.verify_bell.wait(heard, now + wait_us)) {
            for (verify_slot * s : pass_.slots()) {
                if (s->draft_may_grow()) {
                    s->draft.set(state::late);
                }
            }
        }
    }
    for (verify_slot * s : pass_.slots()) {
        if (t0 != 0 && s->drafting()) {
            count_wait(t0, *s, wires_);
        }
    }
    return true;
}

// Evaluates the pass. False: nothing was evaluated, because the only text was cancelled.
bool verify_worker::evaluate(int32_t n_threads) {
    if (pass_.evaluate(n_threads) == decode_status::stopped) {
        return false;
    }
    passes_.count(pass_.n_rows(), pass_.slots().size());
    clock_.is_made();
    plans_.measure(pass_, n_threads);
    for (verify_slot * s : pass_.slots()) {
        on_evaluated(*s);
    }
    // Takes what the draft has prepared meanwhile, so that a hit is recognised and its subtree can be planned with.
    drafts_.take_nodes();
    return true;
}

// The rows of the slot are in the cache now.
void verify_worker::on_evaluated(verify_slot & s) {
    if (s.n_read > 0) {
        cache_.on_read(s);
        drafts_.send_features(s);
        if (wires_.tracing) {
            wires_.verify_trace.try_push({.what   = trace_event::kind::prompt,
                                          .slot   = s.index,
                                          .n_rows = int32_t(s.n_read),
                                          .t0_us  = pass_.t0(),
                                          .t1_us  = pass_.t1()});
        }
        return;
    }
    if (verify_stats & st = s.text.req().stats; st.n_passes == 0) {
        st.prompt_us = pass_.t1() - st.t_begin_us;
        if (active_.size() == 1) {
            plans_.window().on_prompt(st.n_prompt - st.n_prompt_cached, st.prompt_us);
        }
    }
    cache_.on_verified(s);
}

// The pass failed: the text's rows alone, without drafted ones. n_good: leading rows of the cache that can be kept.
void verify_worker::work_again(verify_slot & s, size_t n_good) {
    cache_.go_back(s, std::min(n_good, s.text.context().tokens().size() - 1));
    s.text.guesses().tree().choose({}, 0, 1);
    pass_.begin(s);
    const size_t n_piece = std::min(s.n_read, s.n_missing() - 1);
    do { // a recurrent state may have gone back to the text's begin
        pass_.drop_rows();
        pass_.set_rows(s, n_piece > 0 ? n_piece : reading_.n_to_read(s));
        if (!evaluate(0)) {
            return;
        }
    } while (s.n_read > 0 && n_piece == 0);
    if (s.n_read == 0) {
        clock_.is_for(stance::rest);
        walk_.finish(s, stance::rest);
        walk_.wake_all();
    }
}

// A row of the text was spoiled. Rows may have been spoiled in earlier passes, too, while its prompt was read beside
// other texts.
void verify_worker::repair(verify_slot & s) {
    try {
        work_again(s, s.n_good);
    } catch (const nan_error &) {
        if (cache_.slots().size() == 1) {
            throw;
        }
        work_again(s, 0);
    }
}

// A failure of one text is its own: if the pass had several, each is evaluated alone, and those end that fail again.
void verify_worker::on_failed_pass(failure why) noexcept {
    auto & slots = pass_.slots();
    if (slots.empty()) { // planning failed
        slots = active_.all();
    }
    if (slots.size() == 1) {
        fail(*slots.front(), std::move(why));
        return;
    }
    again_.assign(slots.begin(), slots.end());
    for (verify_slot * s : again_) {
        if (!s->text.active() || s->parked.waits) {
            continue;
        }
        if (s->text.finish() != finish_reason::none) { // it needs no more rows, but the pass may have left some
            cache_.clear(*s);
            continue;
        }
        try {
            work_again(*s, s->cached.size());
        } catch (...) {
            fail(*s, failure_caught());
        }
    }
}

} // namespace duo
