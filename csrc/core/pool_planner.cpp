#include "pool_planner.h"

#include <algorithm>

namespace duo {

namespace {
constexpr double   least_gain    = 0.04; // tokens a pass, as in planner.h
constexpr int64_t  wait_least_us = 2000; // a wait ends only when the draft is clearly late
constexpr int64_t  wait_factor   = 4;    // of the expected time
constexpr int32_t  n_levels_most = 16;   // guesses of a text in a pass
constexpr uint32_t n_rest_first  = 128;  // passes without drafts before they are tried again
constexpr uint32_t n_rest_most   = 2048;
constexpr int32_t  n_trial       = 4;    // passes in which drafts could bring nothing, before a rest
constexpr int32_t  n_judged      = 12;   // passes with drafts before they are judged
constexpr double   least_speedup = 1.02; // of speculation, or it rests
constexpr double   n_believed    = 8.0;  // passes that the expected rate weighs as much as
} // namespace

double pool_planner::rate(size_t n_texts, const pair_profile & profile) const {
    const double alone = profile.pass_us(int32_t(n_texts), false);
    const double plain = alone > 0.0 ? double(n_texts) / alone : 0.0;
    const pace & own   = records_[std::min(n_texts, n_texts_cap)].own;
    const double us    = n_believed * alone;
    const double sum   = own.usual_us + us;
    return sum > 0.0 ? std::max(plain, (own.tokens + us * plain) / sum) : plain;
}

// Turn-taking with k guesses for each text: n E(k) / (k steps over n nodes + a pass over n (k + 1) rows).
pool_planner::way pool_planner::best_turns(size_t n_texts, const pair_profile & profile, int32_t n_most) const {
    const auto   n     = int32_t(n_texts);
    const double plain = profile.pass_us(n, false);
    const double step  = profile.step_us(n, !shared_);
    way          best{.k = 0, .rate = plain > 0.0 ? n / plain : 0.0};
    double       sum  = 1.0;
    double       here = 1.0;
    for (int32_t k = 1; k <= std::min(n_most, n_levels_most); ++k) {
        here *= profile.guesses().acceptance(k - 1);
        sum += here;
        const double pass = profile.pass_us(n * (k + 1), !shared_);
        const double us   = shared_ ? k * step + pass : std::max(k * step, pass);
        if (us > 0.0 && n * sum / us > best.rate * (best.k == 0 ? 1.02 : 1.0)) {
            best = {.k = k, .rate = n * sum / us};
        }
    }
    return best;
}

pool_orders pool_planner::orders(size_t n_texts, const pair_profile & profile, int32_t n_most) {
    record & r = records_[std::min(n_texts, n_texts_cap)];
    drafting_  = false;
    if (r.n_left > 0 || n_most == 0) {
        r.n_left -= r.n_left > 0 ? 1 : 0;
        return {};
    }
    const way best = best_turns(n_texts, profile, n_most);
    if (best.k == 0) {
        // How good the drafts are shows only when they are tried.
        if (++r.n_no_gain > n_trial) {
            begin_rest(r);
        }
        return {};
    }
    r.n_no_gain = 0;
    drafting_   = true;
    if (!shared_) {
        return {.n_ahead = std::min(2 * n_most + 2, 2 * n_levels_most + 2), .n_branch = 8};
    }
    const auto   n     = int32_t(n_texts);
    const double extra = profile.pass_us(n * (best.k + 1), false) - profile.pass_us(n, false);
    const double row   = std::max(0.0, extra / (n * best.k));
    const double price = rate(n_texts, profile) * (profile.step_us(n, false) / n + row);
    return {.n_ahead = std::min(n_most, best.k + 1), .n_branch = 1, .least_path = float(std::clamp(price, 0.0, 0.9))};
}

// Each rest is longer than the one before.
void pool_planner::begin_rest(record & r) {
    r.n_rest    = std::clamp(2 * r.n_rest, n_rest_first, n_rest_most);
    r.n_left    = r.n_rest;
    r.n_no_gain = 0;
    r.own       = {};
}

bool pool_planner::wants_wait(const pool_share & t) const {
    return t.growing && (shared_ || t.fixed) && int32_t(t.tree->best_path().size()) < std::min(t.n_wait, t.n_most);
}

int64_t pool_planner::next(std::span<pool_share> texts, const pair_profile & profile, int32_t n_rows) {
    int32_t n_base  = 0;
    int32_t n_wait  = 0;
    int64_t away_us = -1; // of the texts that are waited for; -1: of none
    for (const pool_share & t : texts) {
        n_base += t.n_base;
        n_wait  = t.growing ? std::max(n_wait, t.n_wait) : n_wait;
        away_us = wants_wait(t) ? std::max(away_us, t.away_us) : away_us;
    }
    if (away_us >= 0) {
        const auto step = int64_t(n_wait * profile.step_us(int32_t(texts.size()), !shared_));
        return std::max(wait_least_us, wait_factor * step) + away_us + away_us / 2;
    }

    // All nodes in one order. A path's chances fall along it, so its nodes come in their order.
    nodes_.clear();
    n_.assign(texts.size(), 0);
    int32_t n_fixed = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
        const pool_share & t = texts[i];
        if (t.tree == nullptr) {
            continue;
        }
        const auto & path = t.tree->best_path();
        const auto   n    = std::min(int32_t(path.size()), t.n_most);
        if (t.fixed) {
            const size_t n_known = t.wide ? t.tree->nodes().size() : path.size();
            n_[i]                = std::min({int32_t(n_known), t.n_most, n_rows - n_fixed});
            n_fixed += n_[i];
            continue;
        }
        for (int32_t j = 0; j < n; ++j) {
            nodes_.push_back({t.tree->nodes()[size_t(path[size_t(j)])].chance, int32_t(i)});
        }
    }
    std::stable_sort(nodes_.begin(), nodes_.end(), [](const node & a, const node & b) { return a.chance > b.chance; });
    const double r     = rate(texts.size(), profile);
    const double alone = r * profile.pass_us(n_base + n_fixed, !shared_);
    double       sum   = 0.0;
    double       best  = least_gain;
    size_t       n     = 0;
    for (size_t m = 1; m <= nodes_.size() && int32_t(m) <= n_rows - n_fixed; ++m) {
        sum += nodes_[m - 1].chance;
        const double value = sum - (r * profile.pass_us(n_base + n_fixed + int32_t(m), !shared_) - alone);
        if (value > best) {
            best = value;
            n    = m;
        }
    }
    for (size_t m = 0; m < n; ++m) {
        ++n_[size_t(nodes_[m].text)];
    }
    for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].tree != nullptr) {
            take(texts[i], n_[i]);
        }
    }
    return 0;
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

// Speculation is judged by what it has brought, not by what was expected of it.
void pool_planner::on_pass(size_t n_texts, const pair_profile & profile, int32_t n_tokens, double us) {
    if (!drafting_) {
        return;
    }
    record & r = records_[std::min(n_texts, n_texts_cap)];
    r.own.add(n_tokens, n_tokens, us);
    const double alone = profile.pass_us(int32_t(n_texts), false);
    if (r.own.n >= n_judged && r.own.tokens * alone < least_speedup * double(n_texts) * r.own.time_us) {
        begin_rest(r);
    } else if (r.own.n == 4 * n_judged) {
        r.n_rest = 0; // it pays
    }
}

} // namespace duo
