#include "pass_planner.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace duo {

pass_planner::pass_planner(token_model & model, target_cache & cache, wires & w, const pair_prior & prior)
    : cache_(cache), wires_(w), clients_(planner_), window_(planner_), texts_(model, w, planner_, clients_) {
    planner_.expect(prior);
}

// On a host one client must not fill the passes of the others, whatever it has fixed.
bool pass_planner::is_fixed(const verify_slot & s) const {
    const bool alone = texts_.is_alone(s);
    return (alone || !wires_.on_host) && duo::is_fixed(s.text.req().plan, alone);
}

int32_t pass_planner::n_verify_most(const verify_slot & s) const {
    return std::clamp(texts_.n_undo(), 0, n_drafted_most(s.text.req().plan, s.text.guesses().shape()));
}

// While prompt rows are missing, evaluating them is better than waiting. Turn-taking waits before the first pass if the
// whole prompt was cached.
text_share pass_planner::share_of(verify_slot & s, bool may_wait) {
    if (s.n_read > 0) {
        return {.n_base = int32_t(s.n_read)};
    }
    const plan_params & plan  = s.text.req().plan;
    const bool          fixed = is_fixed(s);
    s.text.guesses().grow(s.text.tokens(), std::as_const(clients_).guesses_of(s), fixed ? 0.0 : 0.01, cache_.n_room(s));
    const auto n_new = int32_t(s.n_missing());
    const bool begun = s.text.req().stats.n_passes > 0 || (plan.mode == run_mode::sync && n_new == 1);
    return {.tree     = &s.text.guesses().tree(),
            .plan     = &plan,
            .shape    = &s.text.guesses().shape(),
            .n_most   = std::clamp(cache_.n_room(s), 0, n_verify_most(s)),
            .n_base   = n_new,
            .n_branch = cache_.n_branches(),
            .n_told   = texts_.is_alone(s) && !s.told.spared ? n_draft_cap : s.told.n_ahead,
            .growing  = s.draft_may_grow() && begun && !s.text.cancelled() && may_wait,
            .fresh    = !s.text.guesses().was_hit(),
            .fixed    = fixed,
            .reading_us =
                texts_.is_alone(s) && s.draft.now() == draft_contact::state::reading ? s.read_by_us - now_us() : 0,
            .away_us = wires_.signals[size_t(s.message_slot)].rtt_us.load(std::memory_order_relaxed)};
}

int64_t pass_planner::next(target_pass & pass, int32_t n_rows, bool may_wait) {
    shares_.clear();
    for (verify_slot * s : pass.slots()) {
        shares_.push_back(share_of(*s, may_wait));
    }
    const int64_t wait_us = planner_.next(shares_, n_rows);
    for (size_t i = 0; i < shares_.size(); ++i) {
        pass.slots()[i]->expected = shares_[i].expected;
    }
    return wait_us;
}

text_share pass_planner::options_of(const verify_slot & s) const {
    return {.plan   = &s.text.req().plan,
            .shape  = &s.text.guesses().shape(),
            .n_most = n_verify_most(s),
            .fixed  = is_fixed(s)};
}

// A draft head needs the target's states, which wait in a ring with little room.
bool pass_planner::spares_draft(verify_slot & s) const {
    if (wires_.features != nullptr) {
        return false;
    }
    text_share t = options_of(s);
    t.repeats    = s.text.guesses().repeats(clients_.guesses_of(s));
    return planner_.spares(t);
}

draft_wishes pass_planner::wishes_of(const verify_slot & s) const {
    draft_wishes w = planner_.orders(options_of(s));
    // With turn-taking, a guess that the pass has no room for would only delay the pass.
    const bool turns = planner_.stance_now() == stance::by_turn;
    w.n_ahead        = s.told.spared ? 0 : std::min(w.n_ahead, turns ? std::max(0, cache_.n_room(s)) : n_draft_cap);
    return w;
}

bool pass_planner::set_orders(const verify_slot & s, verdict_msg & v) const {
    const draft_wishes w = wishes_of(s);
    v.n_ahead            = int16_t(w.n_ahead);
    v.n_branch           = int16_t(w.n_branch);
    v.n_want             = int16_t(w.n_want);
    v.least_path         = int16_t(w.least_path);
    v.branch_price       = int16_t(w.branch_price);
    v.n_threads          = int16_t(w.n_threads);
    v.sharpness          = clients_.guesses_of(s).sharp().order();
    return v.n_ahead == 0 && !planner_.measuring();
}

void pass_planner::measure(const target_pass & pass, int32_t n_threads) {
    if (pass.us() <= 0 || !pass.is_typical()) {
        return;
    }
    // A pass on a part of the cores counts as beside the draft, whatever the draft did.
    const int64_t beside =
        n_threads > 0 ? pass.us() : wires_.draft_busy.at(pass.t1()) - wires_.draft_busy.at(pass.t0());
    planner_.profile().on_pass(int32_t(pass.n_rows()), pass.us() + pass.branches_us(),
                               double(beside) / double(pass.us()));
}

void pass_planner::on_verdict(const verify_slot & s, double us) {
    planner_.on_pass({.n_tokens = int32_t(s.text.accepted().size()) + 1,
                      .expected = s.expected,
                      .us       = us,
                      .drafting = s.drafting() && !s.told.spared});
}

} // namespace duo
