#include "verify_round.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace duo {

namespace {
using state = draft_contact::state;

constexpr double least_foreseen = 0.3; // chance that a guess must have, so that its experts are fetched

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
                           pass_planner & plans, drafts & all_drafts, pass_texts & in_pass, text_desk & texts,
                           token_walk & walk, pass_evaluator & evaluator)
    : model_(model), wires_(w), cache_(cache), pass_(pass), plans_(plans), drafts_(all_drafts), pass_texts_(in_pass),
      texts_(texts), walk_(walk), evaluator_(evaluator) {
}

void verify_round::idle() {
    evaluator_.stop_clock();
    t_together_ = 0;
}

void verify_round::make() {
    evaluator_.start_clock();
    const bool drafts_begin = begin(texts_.active().all());
    if (!plan() || pass_.slots().empty()) {
        return; // a text has come or is to end, or those whose turn it is were parked
    }
    bool drafting = false;
    for (verify_slot * s : pass_.slots()) {
        pass_.set_rows(*s, s->n_read);
        drafting = drafting || (s->n_read == 0 && s->drafting());
    }
    const auto   slots = pass_.slots();
    const stance now   = plans_.plans().stance_now();
    if (!evaluator_.evaluate(drafting ? plans_.plans().threads().target : 0)) {
        return;
    }
    const bool alone = plans_.texts().is_alone(); // a text that fails is not any more
    if (!alone) {
        pass_texts_.measure(pass_);
    }
    const result r = finish(slots, now);
    if (alone) {
        return; // token_walk::commit has told the planner and the reader
    }
    walk_.wake_all();
    if (!texts_.active().empty()) { // or all have failed, and a reader may look at the measurements now
        tell_planner(r, drafts_begin);
    }
}

// Tells the planner what is written. True: drafts begin to read.
bool verify_round::begin(const std::vector<verify_slot *> & texts) {
    if (texts.size() == 1) {
        plans_.texts().begin_alone(*texts.front());
        t_together_ = 0;
        return false;
    }
    plans_.texts().begin_together(texts);
    const bool any = drafts_.begin_owed(texts);
    drafts_.send_to_rest(texts);
    return any;
}

// Says for each text which rows it gives: a piece of its prompt, or the root and drafted nodes. A text whose guesses
// are not ready gives one row, or is waited for if that pays. False: a text has come or was cancelled, so the plan
// would be stale.
bool verify_round::plan() {
    pass_texts_.fill(pass_, texts_.active().all());
    texts_.make_room(pass_.n_base_rows());
    std::erase_if(pass_.slots(), [](const verify_slot * s) { return s->parked.waits; });
    if (!wait_for_drafts()) {
        return false;
    }
    if (plans_.texts().is_alone() &&
        pass_.slots().front()->n_read == 0) { // several have no more rows than there is room
        texts_.make_room(pass_.n_base_rows() + pass_.slots().front()->text.guesses().tree().rows().size());
    }
    return !any_cancelled();
}

// Asks the planner which rows the pass has, and waits for drafts if that pays. False: a text has come or was cancelled.
bool verify_round::wait_for_drafts() {
    const int32_t n_most = n_room();
    int64_t       t0     = 0;
    waiting_.clear();
    foreseen_.clear();
    for (int32_t i = 0;; ++i) {
        const uint32_t heard = wires_.verify_bell.listen();
        take_nodes();
        const int64_t wait_us = plans_.next(pass_, n_most, i < n_waits_most);
        const bool    stale   = wait_us > 0 && (texts_.take_requests() || any_cancelled());
        if (wait_us <= 0 || stale) {
            for (verify_slot * s : waiting_) {
                count_wait(t0, *s, wires_);
            }
            return !stale;
        }
        if (waiting_.empty()) {
            t0 = now_us();
            std::ranges::copy_if(pass_.slots(), std::back_inserter(waiting_),
                                 [](const verify_slot * s) { return s->draft_may_grow(); });
        }
        walk_.wake_reader();
        const int64_t t_end = now_us() + wait_us;
        foresee();
        if (!wires_.verify_bell.wait(heard, t_end)) {
            for (verify_slot * s : pass_.slots()) {
                if (s->draft_may_grow()) {
                    s->draft.set(state::late); // a draft that hangs costs one wait, not one for each token
                }
            }
        }
    }
}

// While drafts are waited for, the target fetches what the rows of the next pass will read, as far as they are known.
void verify_round::foresee() {
    if (!model_.expects()) {
        return;
    }
    tokens_.clear();
    for (const verify_slot * s : pass_.slots()) {
        const auto & tokens = s->text.context().tokens();
        const auto   n_new  = s->n_read > 0 ? s->n_read : s->n_missing();
        const auto   begin  = tokens.begin() + std::ptrdiff_t(s->cached.size());
        tokens_.insert(tokens_.end(), begin, begin + std::ptrdiff_t(n_new));
        for (const pass_tree::node & nd : s->text.guesses().tree().nodes()) {
            if (s->n_read == 0 && nd.chance >= least_foreseen) {
                tokens_.push_back(nd.token);
            }
        }
    }
    if (tokens_ != foreseen_) {
        foreseen_ = tokens_;
        model_.expect(foreseen_);
    }
}

// Takes the trees as they are known now. The draft of a text that is written alone begins when that pays.
void verify_round::take_nodes() {
    drafts_.take_nodes();
    for (verify_slot * s : pass_.slots()) {
        if (s->n_read > 0 || !plans_.texts().is_alone(*s)) {
            continue;
        }
        if (s->draft.now() == state::returned) {
            drafts_.begin_in_mid_text(*s, n_window_auto);
        }
        drafts_.begin_if_it_pays(*s);
    }
}

// For drafted rows. Several texts have them only where cells and batch have room; a text alone has what earlier texts
// left.
int32_t verify_round::n_room() const {
    if (plans_.texts().is_alone()) {
        return n_draft_cap;
    }
    const size_t n_used  = pass_.n_base_rows();
    const size_t n_batch = size_t(model_.facts().n_batch); // a picture may have more rows
    return int32_t(std::min({cache_.n_free() - n_used, n_batch - std::min(n_used, n_batch), size_t(n_draft_cap),
                             size_t(n_rows_cap) - std::min(size_t(n_rows_cap), n_used)}));
}

bool verify_round::any_cancelled() const {
    return std::ranges::any_of(texts_.active().all(), [](const verify_slot * s) { return s->text.cancelled(); });
}

// Walks along each text of the pass as far as the target agrees. A failure of one text is its own.
verify_round::result verify_round::finish(const std::vector<verify_slot *> & slots, stance now) {
    result                     r;
    std::vector<verify_slot *> spoiled;
    for (verify_slot * s : slots) {
        r.usual = r.usual && s->n_read == 0 && s->text.req().stats.n_passes > 0 &&
                  (s->draft.now() != state::owed || !s->for_draft);
        if (s->n_read > 0) {
            continue;
        }
        const int32_t n_before = s->text.req().stats.n_predicted;
        r.expected += s->expected;
        r.drafting = r.drafting || (s->drafting() && !s->told.spared);
        evaluator_.is_for(now);
        try {
            if (!walk_.finish_unless_spoiled(*s, now)) {
                spoiled.push_back(s);
            }
            r.n_tokens += s->text.req().stats.n_predicted - n_before;
        } catch (...) {
            texts_.fail(*s, failure_caught());
        }
    }
    for (verify_slot * s : spoiled) {
        r.usual = false;
        try {
            evaluator_.repair(*s);
        } catch (...) {
            texts_.fail(*s, failure_caught());
        }
    }
    return r;
}

// What a pass over several texts has brought.
void verify_round::tell_planner(const result & r, bool drafts_begin) {
    const int64_t t = now_us();
    if (t_together_ > 0 && r.n_tokens > 0 && (r.usual || plans_.drafts_rest())) {
        plans_.on_shared_pass({.n_tokens = r.n_tokens,
                               .expected = r.expected,
                               .us       = double(t - t_together_),
                               .drafting = r.drafting,
                               .usual    = r.usual && !drafts_begin});
    }
    t_together_ = t;
}

} // namespace duo
