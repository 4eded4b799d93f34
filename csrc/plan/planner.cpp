#include "planner.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {
constexpr int32_t n_auto_max    = 16;   // most guesses in a pass with --draft auto
constexpr int64_t wait_least_us = 2000; // a wait ends only when the draft is clearly late, not merely slow
constexpr int64_t wait_sync_us  = 250000;
constexpr int64_t wait_factor   = 4;
constexpr double  n_believed    = 8.0; // the expected rate of turn-taking weighs as much as so many passes
constexpr int32_t n_rest_soon   = 32;  // passes of rest that are left when a new text begins
} // namespace

void planner::expect(const pair_prior & prior) {
    prior.check();
    shared_   = prior.shared;
    n_levels_ = prior.n_levels;
    windows_  = prior.windows;
    splits_   = prior.splits;
    split_    = prior.split;
    profile_.expect(prior);
}

int32_t n_drafted_most(const plan_params & params, const tree_shape & shape, int32_t n_auto) {
    const int32_t n = params.mode == run_mode::plain ? 0
                      : !shape.empty()               ? shape.n_nodes()
                      : params.n_max == n_draft_auto ? n_auto
                                                     : params.n_max;
    return std::clamp(n, 0, n_draft_cap);
}

void planner::begin(const plan_params & params, int32_t n_branch, int32_t n_most, bool copy) {
    params_     = params;
    n_branches_ = n_branch;
    copy_       = copy;
    shape_      = tree_shape(params.tree);
    n_max_      = std::min(n_drafted_most(params, shape_, n_auto_max), n_most);
    measuring_  = false;
    outlook_at_ = -1;
    const auto [it, fresh] =
        histories_.try_emplace({int32_t(params.mode), params.n_max, params.n_min, params.n_branch, int32_t(params.use),
                                int32_t(params.kind), params.has_model ? 1 : 0});
    history_ = &it->second;
    if (fresh) {
        history_->splits.begin(splits_.size(), split_);
    }
    history_->splits.stop_trial();
    profile_.choose_split(history_->splits.now());
    const bool sync = params.mode == run_mode::sync;
    if (fresh || !adaptive() || !params.has_model || (sync && history_->stance_now == stance::ahead)) {
        history_->change(first_stance());
    }
    // A new text is a new chance. On separate devices a trial costs little.
    if (stance_now() == stance::rest && !shared_) {
        history_->n_in = std::max(history_->n_in, rest_before_trial() - n_rest_soon);
    }
}

// False: the user or a test has fixed what is verified (turn-taking with a fixed length, a given tree), so costs are
// not compared.
bool planner::adaptive() const {
    return !params_.always && shape_.empty() && params_.use != tree_use::dynamic &&
           (params_.n_max == n_draft_auto || params_.mode != run_mode::sync);
}

double planner::rate() const {
    const double alone = profile_.pass_us(1, false);
    const double plain = alone > 0.0 ? 1.0 / alone : 0.0;
    if (history_->stance_now != stance::by_turn || alone <= 0.0) {
        return history_->own.usual_us > 0.0 ? std::max(plain, history_->own.tokens / history_->own.usual_us) : plain;
    }
    // A few lucky passes would make every guess look too expensive, and a few unlucky ones too cheap.
    const double us = n_believed * alone;
    return std::max(plain, (history_->own.tokens + us * ways().turns.rate) / (history_->own.usual_us + us));
}

plan planner::next(pass_tree & tree, const situation & now) {
    const int32_t n_most = std::min(n_max_, now.n_room);
    tree.choose({}, 0, n_branches_);
    if (n_most <= 0) {
        return {};
    }
    if (!adaptive()) {
        return fixed(tree, now, n_most);
    }
    if (measuring_ && (now.growing || profile_.alone(1).n < n_alone)) {
        // The draft has to stand still first, and the cost of one row is measured before wider passes.
        return wait_for(now.growing ? 1 : 0, now);
    }
    const int32_t n_known = std::min(n_most, widest_try());
    return stance_now() == stance::by_turn ? by_turn(tree, now, n_known) : by_worth(tree, now, n_known);
}

// Wider passes may be expensive, so the width grows in small steps.
int32_t planner::widest_try() const {
    return std::max({1, 2 * profile_.n_tried(), params_.n_min});
}

plan planner::by_worth(pass_tree & tree, const situation & now, int32_t n_most) {
    price(now, n_most, rate());
    const auto & path  = tree.best_path();
    choice       best  = best_of(tree, path, now.n_base, n_most);
    const bool   wide  = prefers_tree(tree, now, n_most, best);
    const double alone = 1.0 - cost_[0];
    if (best.value < alone + least_gain) {
        best = {.value = alone};
    }
    const auto n_path = int32_t(path.size());
    if (history_->stance_now == stance::ahead && now.growing && n_path < n_most &&
        wait_pays(best.value, tree, now, path, n_most)) {
        return wait_for(std::max(1, params_.n_min - n_path), now);
    }
    return take(tree, wide ? tree.by_chance() : path, best.n);
}

// True if more of the tree is worth more than the part of the best path that is `best`, which it replaces. Nodes
// accepted beside the best path are evaluated once more, so a tree has to be clearly better.
bool planner::prefers_tree(pass_tree & tree, const situation & now, int32_t n_most, choice & best) const {
    if (params_.use != tree_use::automatic || n_branches_ == 1 || tree.nodes().size() <= tree.best_path().size()) {
        return false;
    }
    const choice all  = best_of(tree, tree.by_chance(), now.n_base, n_most);
    const bool   wide = all.value > best.value + least_gain;
    best              = wide ? all : best;
    return wide;
}

// The best rate that this path allows now, in tokens per microsecond. A few lucky passes may leave a running rate above
// it, and then the shortest pass would always seem best.
double planner::best_ratio(const pass_tree & tree, const situation & now, const std::vector<int32_t> & path,
                           int32_t n_most) const {
    double best = 0.0;
    double sum  = 1.0;
    for (int32_t m = 0; m <= std::min(int32_t(path.size()), n_most); ++m) {
        sum += m == 0 ? 0.0 : tree.nodes()[size_t(path[size_t(m - 1)])].chance;
        const double us = profile_.pass_us(now.n_base + m, false);
        best            = us > 0.0 ? std::max(best, sum / us) : best;
    }
    return best;
}

// Sets cost_: the cost of a pass by its number of drafted nodes. The unit is tokens that could be had in the same time,
// at r tokens per microsecond.
void planner::price(const situation & now, int32_t n_most, double r) {
    for (int32_t m = 0; m <= n_most + 1; ++m) {
        cost_[size_t(m)] = r * profile_.pass_us(now.n_base + m, beside());
    }
}

// The leading part of `order` with the highest E - R * cost.
planner::choice planner::best_of(const pass_tree & tree, const std::vector<int32_t> & order, int32_t n_base,
                                 int32_t n_most) const {
    double sum   = 1.0;
    double twice = 0.0; // tokens that the next pass will probably have to evaluate again
    double right = 1.0; // chance of all of a chain
    choice best{.value = sum - cost_[0]};
    for (int32_t m = 1; m <= std::min(int32_t(order.size()), n_most); ++m) {
        const int32_t i = order[size_t(m - 1)];
        sum += tree.nodes()[size_t(i)].chance;
        twice += tree.on_best_path(i) ? 0.0 : tree.nodes()[size_t(i)].chance;
        if (copy_) { // all that was right before this guess, if this is the first wrong one
            twice += (right - tree.nodes()[size_t(i)].chance) * (n_base + m - 1);
            right = tree.nodes()[size_t(i)].chance;
        }
        const double now   = cost_[size_t(m)];
        const double value = sum - now - twice * (cost_[size_t(m + 1)] - now);
        if (value > best.value && m >= params_.n_min) {
            best = {.value = value, .sum = sum, .n = m};
        }
    }
    return best;
}

// True if it pays to wait until the draft has made the best path some levels longer.
bool planner::wait_pays(double value, const pass_tree & tree, const situation & now, const std::vector<int32_t> & path,
                        int32_t n_most) const {
    const double r    = rate();
    const double step = profile_.step_us(1, beside());
    if (r <= 0.0 || step <= 0.0) {
        return false; // the cost of a wait is not known yet
    }
    double sum = 1.0;
    for (const int32_t i : path) {
        sum += tree.nodes()[size_t(i)].chance;
    }
    double     reached = path.empty() ? 1.0 : tree.nodes()[size_t(path.back())].chance;
    const auto n_path  = int32_t(path.size());
    // A head first makes its row of the root anew, if that is of its own states. Each level more is a step older.
    const bool    again = !path.empty() && tree.nodes()[size_t(path.front())].age > 0;
    const int32_t age   = path.empty() ? -1 : tree.nodes()[size_t(path.back())].age;
    for (int32_t d = 1; n_path + d <= n_most; ++d) {
        reached *= n_path + d == 1 && now.fresh ? guesses().acceptance_fresh() : acceptance(n_path + d - 1, age + d);
        sum += reached;
        const double us = n_steps(d + (again ? 1 : 0)) * step + (now.fresh ? double(now.away_us) : 0.0);
        if (n_path + d >= params_.n_min && sum - cost_[size_t(n_path + d)] - r * us > value + least_gain) {
            return true;
        }
    }
    return false;
}

// The draft stops by itself where a further guess is not worth a step (least_path()). Of its guesses, those worth a row
// are verified. While nothing pays, the draft makes one guess, which is only counted as right or wrong.
plan planner::by_turn(pass_tree & tree, const situation & now, int32_t n_most) {
    const auto & path   = tree.best_path();
    const auto   n_path = int32_t(path.size());
    const auto   n      = std::min<int32_t>(n_ahead(), n_most);
    if (now.growing && n_path < n && (ways().hopeful.k > 0 || shared_)) {
        return wait_for(n - n_path, now);
    }
    price(now, n_most, std::min(rate(), best_ratio(tree, now, path, n_most)));
    choice     best = best_of(tree, path, now.n_base, n_most);
    const bool wide = n_levels_ > 1 && prefers_tree(tree, now, n_most, best);
    return take(tree, wide ? tree.by_chance() : path, best.value < 1.0 - cost_[0] + least_gain ? 0 : best.n);
}

// What the user or a test has fixed: a chain of n_most nodes, a shape, or the n_most best nodes.
plan planner::fixed(pass_tree & tree, const situation & now, int32_t n_most) {
    const bool turns = params_.mode == run_mode::sync;
    if (!shape_.empty() || params_.use == tree_use::dynamic) {
        const auto & all = tree.by_chance();
        // Turn-taking waits until the draft says that its tree is complete, running ahead until there are enough nodes.
        const bool more = !shape_.empty() ? tree.n_open() > 0 : turns || int32_t(all.size()) < n_most;
        if (now.growing && more) {
            return wait_for(n_most, now);
        }
        return take(tree, all, n_most);
    }
    const auto &  path   = tree.best_path();
    const auto    n_path = int32_t(path.size());
    const int32_t n      = turns ? n_most : std::min(n_most, std::max(1, params_.n_min));
    if (n_path < n && now.growing) {
        return wait_for(n - n_path, now);
    }
    return take(tree, path, n_most);
}

// Chooses the first n nodes of `order`, as far as there are branches for them.
plan planner::take(pass_tree & tree, const std::vector<int32_t> & order, int32_t n) {
    tree.choose(order, size_t(std::max(0, n)), n_branches_);
    if (int32_t(tree.rows().size()) < params_.n_min) {
        tree.choose(order, 0, n_branches_);
    }
    return {.n_verify = int32_t(tree.rows().size()), .expected = tree.expected()};
}

// Verifies nothing yet: waits until the draft has made so many steps. n_steps 0: the root is verified alone, at once.
plan planner::wait_for(int32_t n_steps, const situation & now) const {
    if (n_steps == 0) {
        return {};
    }
    const auto expected = int64_t(n_steps * profile_.step_us(1, beside()));
    // The round trip is a median, so some messages take longer. A lost connection must not cost several round trips.
    const auto away = int64_t(1.5 * double(now.away_us));
    return {.wait_us = std::max(turns() ? wait_sync_us : wait_least_us, wait_factor * expected) + away};
}

} // namespace duo
