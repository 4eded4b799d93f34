#include "pass_planner.h"

#include <algorithm>
#include <utility>

namespace duo {

pass_planner::pass_planner(token_model & model, target_cache & cache, wires & w, const pair_prior & prior,
                           std::optional<stance> only)
    : model_(model), cache_(cache), wires_(w), clients_(single_), window_(single_) {
    single_.expect(prior);
    pool_.expect(prior, only);
}

void pass_planner::begin_single(verify_slot & s) {
    if (is_single(s)) {
        return;
    }
    const request & req = s.text.req();
    clients_.use(req.client);
    plan_params params = req.plan;
    params.has_model   = s.for_draft;
    params.kind        = req.sampling.kind();
    single_.begin(params, cache_.n_branches(), model_.n_undo(), model_.undo() == undo_kind::copy);
    planned_slot_ = &s;
}

void pass_planner::grow(verify_slot & s, double least) {
    s.text.guesses().grow(s.text.req().plan, s.text.tokens(), std::as_const(clients_).guesses_of(s), least,
                          cache_.n_room(s));
}

plan pass_planner::next_single(verify_slot & s, bool may_wait) {
    grow(s, single_.least_chance());
    // While prompt rows are missing, evaluating them is better than waiting. Turn-taking waits before the first pass if
    // the whole prompt was cached.
    const auto n_new = int32_t(s.n_missing());
    const bool begun = s.text.stats().n_passes > 0 || (s.text.req().plan.mode == run_mode::sync && n_new == 1);
    return single_.next(s.text.tree(), {.n_room  = cache_.n_room(s),
                                        .growing = s.draft_may_grow() && begun && !s.text.cancelled() && may_wait,
                                        .fresh   = !s.text.guesses().was_hit(),
                                        .n_base  = n_new,
                                        .away_us = away_us(s)});
}

void pass_planner::order(const std::vector<verify_slot *> & texts) {
    if (wires_.on_host) { // elsewhere there is one draft
        clients_.use_median(texts);
    }
    pool_wishes wishes{.sync = true, .no_waits = wires_.on_host};
    for (const verify_slot * s : texts) {
        if (s->for_draft) {
            wishes.kind   = wishes.n_most == 0 ? s->text.req().sampling.kind() : wishes.kind;
            wishes.n_most = n_draft_cap;
            wishes.sync   = wishes.sync && s->text.req().plan.mode == run_mode::sync;
            // On a host one client must not decide for the others.
            wishes.always = wishes.always || (!wires_.on_host && s->text.req().plan.always);
        }
    }
    orders_ = pool_.orders(texts.size(), profile(), wishes);
}

int32_t pass_planner::n_verify_most(const verify_slot & s) const {
    return n_drafted_most(s.text.req().plan, s.text.guesses().shape(), n_draft_cap);
}

pool_share pass_planner::share_of(verify_slot & s, int32_t n_texts, bool may_wait) {
    if (s.n_read > 0) {
        return {.n_base = int32_t(s.n_read)};
    }
    const plan_params & plan  = s.text.req().plan;
    const bool          fixed = plan.always || !plan.tree.empty() || plan.use == tree_use::dynamic;
    const bool          begun = s.text.stats().n_passes > 0;
    grow(s, fixed ? 0.0 : 0.01);
    const int32_t n_most = std::min(n_verify_most(s), std::max(0, model_.n_undo_together(n_texts)));
    return {.tree     = &s.text.tree(),
            .n_base   = int32_t(s.n_missing()),
            .n_most   = std::max(0, std::min(cache_.n_room(s), n_most)),
            .n_min    = plan.n_min,
            .fixed    = fixed,
            .wide     = plan.use == tree_use::dynamic || !plan.tree.empty(),
            .drafting = s.drafting(),
            .growing  = may_wait && begun && s.draft_may_grow() && !s.text.cancelled(),
            .away_us  = away_us(s),
            .n_wait   = std::min({n_most, s.n_ahead, fixed ? n_most : orders_.n_wait}),
            .n_branch = cache_.n_branches()};
}

int64_t pass_planner::share_rows(target_pass & pass, int32_t n_rows, bool may_wait) {
    shares_.clear();
    for (verify_slot * s : pass.slots()) {
        shares_.push_back(share_of(*s, int32_t(pass.slots().size()), may_wait));
    }
    const int64_t wait_us = pool_.next(shares_, profile(), n_rows);
    for (size_t i = 0; i < shares_.size(); ++i) {
        pass.slots()[i]->expected = shares_[i].expected;
    }
    return wait_us;
}

bool pass_planner::set_orders(const verify_slot & s, verdict_msg & v) const {
    const int32_t n_room = std::max(0, cache_.n_room(s));
    if (is_single(s)) {
        // With turn-taking, a guess that the pass has no room for would only delay the pass.
        const int32_t n_most = single_.stance_now() == stance::by_turn ? n_room : n_draft_cap;
        v.n_ahead            = int16_t(std::min<int32_t>(single_.n_ahead(), n_most));
        v.n_branch           = single_.n_branch();
        v.n_want             = single_.n_want();
        v.least_path         = single_.least_path();
        v.n_threads          = int16_t(single_.threads().draft);
    } else {
        const bool    turns  = pool_.stance_now() == stance::by_turn;
        const int32_t n_most = turns ? std::max(0, std::min(n_room, n_verify_most(s))) : n_draft_cap;
        v.n_ahead            = int16_t(std::min(orders_.n_ahead, n_most));
        v.n_branch           = int16_t(orders_.n_branch);
        v.least_path         = int16_t(1000 * orders_.least_path);
    }
    v.branch_price = single_.branch_price();
    v.sharpness    = clients_.guesses_of(s).sharp().order();
    return v.n_ahead == 0 && !(is_single(s) && single_.measuring());
}

void pass_planner::measure(const target_pass & pass, int32_t n_threads) {
    if (pass.us() <= 0 || !pass.is_typical()) {
        return;
    }
    // A pass on a part of the cores counts as beside the draft, whatever the draft did.
    const int64_t beside =
        n_threads > 0 ? pass.us() : wires_.draft_busy.at(pass.t1()) - wires_.draft_busy.at(pass.t0());
    single_.profile().on_pass(int32_t(pass.n_rows()), pass.us() + pass.branches_us(),
                              double(beside) / double(pass.us()));
}

} // namespace duo
