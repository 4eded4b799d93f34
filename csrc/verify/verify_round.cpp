#include "verify_round.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

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

verify_round::verify_round(token_model & model, wires & w, target_cache & cache, target_pass & pass,
                           pass_planner & plans, drafts & all_drafts, reading_plan & reading, text_desk & texts,
                           token_walk & walk, pass_evaluator & evaluator)
    : model_(model), wires_(w), cache_(cache), pass_(pass), plans_(plans), drafts_(all_drafts), reading_(reading),
      texts_(texts), walk_(walk), evaluator_(evaluator) {
}

void verify_round::idle() {
    evaluator_.stop_clock();
    t_together_ = 0;
}

void verify_round::make() {
    evaluator_.start_clock();
    if (const auto & all = texts_.active().all(); all.size() == 1) {
        t_together_ = 0;
        work_alone(*all.front());
    } else {
        work_together();
    }
}

void verify_round::work_alone(verify_slot & s) {
    plans_.begin_alone(s);
    pass_.begin(s);
    if (const size_t n = reading_.n_to_read(s); n > 0) {
        model_.use_threads(0);
        texts_.active().make_room(n);
        pass_.set_rows(s, n);
        evaluator_.evaluate(0);
        return;
    }
    if (!plan_alone(s)) {
        return;
    }
    if (cache_.slots().size() > 1) {
        texts_.active().make_room(s.n_missing() + s.text.guesses().tree().rows().size());
    }
    pass_.set_rows(s, 0);
    const stance now = plans_.plans().stance_now();
    if (evaluator_.evaluate(s.drafting() ? plans_.plans().threads().target : 0)) {
        evaluator_.is_for(now);
        if (!walk_.finish_unless_spoiled(s, now)) {
            evaluator_.repair(s);
        }
    }
}

// Takes the tree as it is known now, asks the planner, and waits for the draft if that pays. False: another text has
// come, or this one was cancelled.
bool verify_round::plan_alone(verify_slot & s) {
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
        if (planned <= 0 || texts_.take_requests()) {
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
    return texts_.active().size() == 1 && !s.text.cancelled();
}

// A text whose guesses are not ready gives one row. A long prompt is read in pieces beside the texts that are written.
void verify_round::work_together() {
    plans_.begin_together(texts_.active().all());
    const bool drafts_read = drafts_.begin_in_company(texts_.active().all());
    drafts_.send_to_rest(texts_.active().all());
    if (!plan_together() || pass_.slots().empty()) {
        return; // a text has come or is to end, or those whose turn it is were parked
    }
    for (verify_slot * s : pass_.slots()) {
        pass_.set_rows(*s, s->n_read);
    }
    const auto slots = pass_.slots();
    if (!evaluator_.evaluate(0)) {
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
        evaluator_.is_for(now);
        try {
            if (!walk_.finish_unless_spoiled(*s, now)) {
                spoiled.push_back(s);
            }
            n_tokens += s->text.req().stats.n_predicted - n_before;
        } catch (...) {
            texts_.fail(*s, failure_caught());
        }
    }
    for (verify_slot * s : spoiled) {
        usual = false;
        try {
            evaluator_.repair(*s);
        } catch (...) {
            texts_.fail(*s, failure_caught());
        }
    }
    walk_.wake_all();
    if (texts_.active().empty()) { // all have failed, and a reader may look at the measurements now
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
bool verify_round::plan_together() {
    reading_.fill(pass_, texts_.active().all());
    texts_.active().make_room(pass_.n_base_rows());
    std::erase_if(pass_.slots(), [](const verify_slot * s) { return s->parked.waits; });
    const size_t n_used  = pass_.n_base_rows();
    const auto   n_batch = size_t(model_.facts().n_batch); // a picture may have more rows
    const auto   n_rows =
        int32_t(std::min({cache_.n_free() - n_used, n_batch - std::min(n_used, n_batch), size_t(n_draft_cap),
                          size_t(n_rows_cap) - std::min(size_t(n_rows_cap), n_used)}));
    int64_t t0 = 0;
    for (int32_t i = 0;; ++i) {
        const uint32_t heard = wires_.verify_bell.listen();
        drafts_.take_nodes();
        const int64_t wait_us = plans_.next(pass_, n_rows, i < n_waits_most);
        if (wait_us <= 0) {
            break;
        }
        if (texts_.take_requests() ||
            std::ranges::any_of(texts_.active().all(), [](verify_slot * s) { return s->text.cancelled(); })) {
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

} // namespace duo
