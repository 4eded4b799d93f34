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
            take(t, false, 0);
            const int32_t n = waits_.n_awaited(t);
            us              = n > 0 ? std::max(us, waits_.us(n, t)) : us;
        }
    }
    if (us > 0 || (measuring() && profile_.passes().alone(1).n < stance_choice::n_alone)) {
        return us; // the cost of one row is measured before wider passes
    }
    return choose_rows(texts, n_rows);
}

// What the user or a test has fixed is in the pass anyway. Adds it to n_base, takes it from n_rows.
void planner::take_fixed(std::span<text_share> texts, int32_t & n_base, int32_t & n_rows) {
    for (text_share & t : texts) {
        n_base += t.n_base;
        if (t.tree != nullptr && t.fixed) {
            take(t, !t.shape->empty() || t.plan->use == tree_use::dynamic, std::min(t.n_most, n_rows));
            n_base += int32_t(t.tree->rows().size());
            n_rows -= int32_t(t.tree->rows().size());
        }
    }
}

// > 0: a wait pays.
int64_t planner::choose_rows(std::span<text_share> texts, int32_t n_rows) {
    const auto   n_texts = int32_t(texts.size());
    text_share * any     = nullptr; // whose rows are chosen
    int32_t      n_base  = 0;
    take_fixed(texts, n_base, n_rows);
    rows_.clear();
    for (int32_t i = 0; i < n_texts; ++i) {
        text_share & t = texts[size_t(i)];
        if (t.tree != nullptr && t.n_most > 0 && !t.fixed) {
            rows_.add(*t.tree, t.tree->best_path(), size_t(t.n_most), i);
            any = &t;
        }
    }
    if (any == nullptr) {
        return 0;
    }
    const bool    alone  = n_texts == 1;
    const int32_t n_most = std::min(
        {n_rows, alone ? any->n_most : n_rows, std::max(profile_.passes().widest_try(any->plan->n_min), n_texts)});
    if (!alone) {
        rows_.sort();
    }
    const bool   turns = stances_.now() == stance::by_turn;
    const double r     = turns ? std::min(rate(), rows_.best_ratio(profile_, n_texts, n_base, n_most)) : rate();
    rows_.price(profile_, n_base, n_most, stances_.now() == stance::ahead, r);
    row_choice::gain best = rows_.best(n_base, n_most, alone ? any->plan->n_min : 0, alone && rates_.terms().copy);
    const bool wide = alone && (!turns || rates_.terms().n_levels > 1) && prefers_tree(*any, n_base, n_most, best);
    best            = best.value < row_choice::least_gain ? row_choice::gain{} : best;
    if (alone && waits_.pays(best.value, *any, n_most, rows_)) {
        return waits_.us(std::max(1, any->plan->n_min - int32_t(any->tree->best_path().size())), *any);
    }
    n_of_.assign(texts.size(), 0);
    for (int32_t i = 0; i < best.n; ++i) {
        ++n_of_[size_t(rows_.text_of(i))];
    }
    for (size_t i = 0; i < texts.size(); ++i) {
        if (n_of_[i] > 0) {
            take(texts[i], wide, n_of_[i]);
        }
    }
    return 0;
}

// True if more of the tree is worth more than the part of the best path that is `best`, which it replaces. Nodes
// accepted beside the best path are evaluated once more, so a tree has to be clearly better.
bool planner::prefers_tree(const text_share & t, int32_t n_base, int32_t n_most, row_choice::gain & best) {
    if (t.plan->use != tree_use::automatic || t.n_branch == 1 || t.tree->nodes().size() <= t.tree->best_path().size()) {
        return false;
    }
    rows_.clear();
    rows_.add(*t.tree, t.tree->by_chance(), size_t(n_most), 0);
    const row_choice::gain all  = rows_.best(n_base, n_most, t.plan->n_min, rates_.terms().copy);
    const bool             wide = all.value > best.value + row_choice::least_gain;
    best                        = wide ? all : best;
    return wide;
}

// Chooses the first n nodes of the best path or of the whole tree, as far as there are branches for them.
void planner::take(text_share & t, bool wide, int32_t n) {
    t.tree->choose(wide ? t.tree->by_chance() : t.tree->best_path(), size_t(std::max(0, n)), t.n_branch);
    if (int32_t(t.tree->rows().size()) < t.plan->n_min) {
        t.tree->choose({}, 0, t.n_branch);
    }
    t.expected = t.tree->expected();
}

} // namespace duo
