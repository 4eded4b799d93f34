#include "planner.h"

#include <algorithm>

namespace duo {

void planner::expect(const pair_prior & prior) {
    prior.check();
    profile_.expect(prior);
}

void planner::begin(const plan_params & params, const text_limits & limits) {
    rates_.begin({.n_texts  = limits.n_texts,
                  .n_max    = std::min(n_drafted_most(params, tree_shape(params.tree)), limits.n_undo),
                  .n_min    = params.n_min,
                  .n_levels = profile_.passes().prior().n_levels,
                  .copy     = limits.copy,
                  .kind     = params.kind});
    if (!limits.goes_on) {
        profile_.gains(params.kind).begin_text();
    }
    counts_ = !limits.several() && params.has_model && params.mode != run_mode::plain && !is_fixed(params);
    stances_.begin(params, limits);
}

void planner::on_pass(const pass_result & pass) {
    if (counts_ && pass.drafting && stances_.now() != stance::rest) {
        profile_.gains(rates_.terms().kind).on_pass(pass.n_tokens, pass.us, rates_.plain_us());
    } else if (counts_) {
        profile_.gains(rates_.terms().kind).on_pass_without(pass.us);
    }
    stances_.on_pass(pass);
}

int64_t planner::next(std::span<text_share> texts, int32_t n_rows) {
    int64_t us = 0;
    for (text_share & t : texts) {
        if (t.tree != nullptr) {
            row_choice::take(t, false, 0);
            const int32_t n = waits_.n_awaited(t);
            us              = n > 0 ? std::max(us, waits_.us(n, t)) : us;
        }
    }
    if (us > 0 || (measuring() && profile_.passes().alone(1).n < stance_choice::n_alone)) {
        return us; // the cost of one row is measured before wider passes
    }
    return rows_.choose(texts, n_rows);
}

void planner::exchange_draft(draft_memory & other) {
    other.ways.try_emplace({}); // first what may throw
    profile_.exchange_draft(other.profile);
    stances_.memory().swap(other.ways);
}

void planner::forget() {
    stances_.memory().forget();
    profile_.forget();
}

} // namespace duo
