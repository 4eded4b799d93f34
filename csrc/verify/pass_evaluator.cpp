#include "pass_evaluator.h"

#include <algorithm>
#include <utility>

namespace duo {

pass_evaluator::pass_evaluator(wires & w, target_cache & cache, target_pass & pass, pass_planner & plans,
                               drafts & all_drafts, const pass_texts & in_pass, token_walk & walk, text_desk & texts)
    : wires_(w), cache_(cache), pass_(pass), plans_(plans), drafts_(all_drafts), pass_texts_(in_pass), walk_(walk),
      texts_(texts) {
    again_.reserve(cache.slots().size());
}

void pass_evaluator::begin() {
    pass_.clear();
    clock_.begin_pass();
}

bool pass_evaluator::evaluate(int32_t n_threads) {
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
void pass_evaluator::on_evaluated(verify_slot & s) {
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
        if (texts_.active().size() == 1) {
            plans_.window().on_prompt(st.n_prompt - st.n_prompt_cached, st.prompt_us);
        }
    }
    cache_.on_verified(s);
}

// The pass failed: the text's rows alone, without drafted ones. n_good: leading rows of the cache that can be kept.
void pass_evaluator::work_again(verify_slot & s, size_t n_good) {
    cache_.go_back(s, std::min(n_good, s.text.context().tokens().size() - 1));
    s.text.guesses().tree().choose({}, 0, 1);
    pass_.begin(s);
    const size_t n_piece = std::min(s.n_read, s.n_missing() - 1);
    do { // a recurrent state may have gone back to the text's begin
        pass_.drop_rows();
        const size_t n_read = n_piece > 0 ? pass_texts::one_kind(s, n_piece) : pass_texts_.n_to_read(s);
        texts_.make_room(n_read > 0 ? n_read : s.n_missing()); // planning may have failed before it did
        if (s.parked.waits) {
            return;
        }
        pass_.set_rows(s, n_read);
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

// Rows may have been spoiled in earlier passes, too, while its prompt was read beside other texts.
void pass_evaluator::repair(verify_slot & s) {
    try {
        work_again(s, s.n_good);
    } catch (const nan_error &) {
        if (cache_.slots().size() == 1) {
            throw;
        }
        work_again(s, 0);
    }
}

void pass_evaluator::on_failure(failure why) noexcept {
    auto & slots = pass_.slots();
    if (slots.empty()) { // planning failed
        slots = texts_.active().all();
    }
    if (slots.size() == 1) {
        texts_.fail(*slots.front(), std::move(why));
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
            texts_.fail(*s, failure_caught());
        }
    }
}

} // namespace duo
