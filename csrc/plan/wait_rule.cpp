#include "wait_rule.h"

#include <algorithm>

namespace duo {

namespace {
constexpr int64_t least_us      = 2000; // a wait ends only when the draft is clearly late, not merely slow
constexpr int64_t least_turn_us = 250000;
constexpr int64_t wait_factor   = 4; // of the expected time
} // namespace

// By turn, the draft stops by itself where a further guess is not worth a step (draft_wishes::least_path). While
// nothing pays it makes one guess, which is only counted as right or wrong; on cores of its own nobody waits for that.
int32_t wait_rule::n_awaited(const text_share & t) const {
    if (!t.growing || std::min(t.n_most, t.n_told) <= 0 || !stances_.may_wait()) {
        return 0;
    }
    if (t.fixed) {
        return n_of_fixed(t);
    }
    if (stances_.measuring()) {
        return 1; // the draft has to stand still
    }
    if (stances_.now() != stance::by_turn || (rates_.now().hopeful.k == 0 && !stances_.shared())) {
        return 0;
    }
    const int32_t n = std::min({wishes_.n_ahead(t), t.n_most, t.n_told});
    return std::max(0, n - t.tree->drafted_depth());
}

// A chain of n_most nodes, a shape, or the n_most best nodes.
int32_t wait_rule::n_of_fixed(const text_share & t) const {
    const bool turns = t.plan->mode == run_mode::sync;
    if (!t.shape->empty() || t.plan->use == tree_use::dynamic) {
        // Turn-taking waits until the draft says that its tree is complete, running ahead until there are enough nodes.
        const bool more =
            !t.shape->empty() ? t.tree->n_open() > 0 : turns || int32_t(t.tree->by_chance().size()) < t.n_most;
        return more ? t.n_most : 0;
    }
    const int32_t n = turns ? t.n_most : std::min(t.n_most, std::max(1, t.plan->n_min));
    return std::max(0, std::min(n, t.n_told) - int32_t(t.tree->best_path().size()));
}

bool wait_rule::pays(double value, const text_share & t, int32_t n_most, const row_values & rows) const {
    const double r    = stances_.rate();
    const double step = rates_.step_us(true);
    const auto & path = t.tree->best_path();
    const auto   n    = int32_t(path.size());
    if (!t.growing || !beside() || !stances_.may_wait() || n >= n_most || r <= 0.0 || step <= 0.0) {
        return false; // the cost of a wait may be unknown yet
    }
    double sum = 0.0;
    for (const int32_t i : path) {
        sum += t.tree->nodes()[size_t(i)].chance;
    }
    double reached = path.empty() ? 1.0 : t.tree->nodes()[size_t(path.back())].chance;
    // A head first makes its row of the root anew, if that is of its own states. Each level more is a step older.
    const bool    again = !path.empty() && t.tree->nodes()[size_t(path.front())].age > 0;
    const int32_t age   = path.empty() ? -1 : t.tree->nodes()[size_t(path.back())].age;
    for (int32_t d = 1; n + d <= n_most; ++d) {
        reached *= n + d == 1 && t.fresh ? rates_.guesses().acceptance_fresh() : rates_.acceptance(n + d - 1, age + d);
        sum += reached;
        const double us = rates_.n_steps(d + (again ? 1 : 0)) * step + (t.fresh ? double(t.away_us) : 0.0);
        if (n + d >= t.plan->n_min && sum - rows.cost(n + d) - r * us > value + row_values::least_gain) {
            return true;
        }
    }
    return false;
}

int64_t wait_rule::us(int32_t n_levels, const text_share & t) const {
    const bool turns    = stances_.now() == stance::by_turn || t.plan->mode == run_mode::sync;
    const auto expected = int64_t(n_levels * rates_.step_us(beside()));
    // The round trip is a median, so some messages take longer. A lost connection must not cost several round trips.
    const auto away = int64_t(1.5 * double(t.away_us));
    // Where the models take turns on the same cores, a draft that reads is waited for: both at once would take longer.
    const int64_t reading = stances_.now() == stance::by_turn && stances_.shared() ? t.reading_us : 0;
    return std::max({turns ? least_turn_us : least_us, wait_factor * expected, reading}) + away;
}

} // namespace duo
