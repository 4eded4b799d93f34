#include "pool_planner.h"

#include <algorithm>

namespace duo {

namespace {
constexpr double  least_gain    = 0.04; // tokens a pass, as in planner.h
constexpr int64_t wait_least_us = 2000; // a wait ends only when the draft is clearly late
constexpr int64_t wait_factor   = 4;    // of the expected time
} // namespace

// Unless the draft runs ahead, a pass waits for the guesses of its texts.
bool pool_planner::wants_wait(const pool_share & t) const {
    return t.growing && !no_waits_ && (now_ != stance::ahead || t.fixed) &&
           int32_t(t.tree->best_path().size()) < std::min(t.n_wait, t.n_most);
}

int64_t pool_planner::next(std::span<pool_share> texts, const pair_profile & profile, int32_t n_rows) {
    int32_t n_steps = 1;
    int64_t away_us = -1; // of the texts that are waited for; -1: of none
    for (const pool_share & t : texts) {
        n_steps = t.growing ? std::max(n_steps, t.n_wait) : n_steps;
        away_us = wants_wait(t) ? std::max(away_us, t.away_us) : away_us;
    }
    if (away_us >= 0) {
        const auto step = int64_t(n_steps * profile.step_us(int32_t(texts.size()), now_ != stance::by_turn));
        return std::max(wait_least_us, wait_factor * step) + away_us + away_us / 2;
    }
    for (const pool_share & t : texts) {
        if (t.drafting && t.tree != nullptr && now_ == stance::ahead) {
            record_of(n_texts_).ready.add(!t.tree->best_path().empty(), 0.98);
        }
    }
    choose(texts, profile, n_rows, rate(n_texts_, profile));
    for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].tree != nullptr) {
            take(texts[i], n_[i]);
        }
    }
    return 0;
}

// Fills n_. All nodes in one order; a path's chances fall along it, so its nodes come in their order.
void pool_planner::choose(std::span<const pool_share> texts, const pair_profile & profile, int32_t n_rows, double r) {
    const bool beside = now_ == stance::ahead;
    int32_t    n_base = 0; // rows that are in the pass anyway
    nodes_.clear();
    n_.assign(texts.size(), 0);
    for (size_t i = 0; i < texts.size(); ++i) {
        const pool_share & t = texts[i];
        n_base += t.n_base;
        if (t.tree == nullptr) {
            continue;
        }
        const auto & path = t.tree->best_path();
        const auto   n    = std::min(int32_t(path.size()), t.n_most);
        if (t.fixed) {
            const size_t n_known = t.wide ? t.tree->nodes().size() : path.size();
            n_[i]                = std::min({int32_t(n_known), t.n_most, n_rows});
            n_base += n_[i];
            n_rows -= n_[i];
            continue;
        }
        for (int32_t j = 0; j < n; ++j) {
            nodes_.push_back({t.tree->nodes()[size_t(path[size_t(j)])].chance, int32_t(i)});
        }
    }
    std::stable_sort(nodes_.begin(), nodes_.end(), [](const node & a, const node & b) { return a.chance > b.chance; });
    const double alone = r * profile.pass_us(n_base, beside);
    double       sum   = 0.0;
    double       best  = least_gain;
    size_t       n     = 0;
    for (size_t m = 1; m <= nodes_.size() && int32_t(m) <= n_rows; ++m) {
        sum += nodes_[m - 1].chance;
        const double value = sum - (r * profile.pass_us(n_base + int32_t(m), beside) - alone);
        if (value > best) {
            best = value;
            n    = m;
        }
    }
    for (size_t m = 0; m < n; ++m) {
        ++n_[size_t(nodes_[m].text)];
    }
}

// Chooses n nodes of the text, or none.
void pool_planner::take(pool_share & t, int32_t n) {
    const auto & order = t.wide ? t.tree->by_chance() : t.tree->best_path();
    t.tree->choose(order, size_t(n), t.wide ? t.n_branch : 1);
    if (int32_t(t.tree->rows().size()) < t.n_min) {
        t.tree->choose(order, 0, 1);
    }
    t.expected = t.tree->expected();
}

} // namespace duo
