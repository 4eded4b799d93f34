// What each stance would bring, by what was measured of the pair.
#include <algorithm>

#include "planner.h"

namespace duo {

namespace {
constexpr double good_guess = 0.75; // acceptance
} // namespace

// Tokens of a verification of k guesses, one below the other.
double planner::expected_of(int32_t k) const {
    double sum  = 1.0;
    double here = 1.0;
    for (int32_t i = 0; i < k; ++i) {
        here *= profile_.guesses().acceptance(i);
        sum += here;
    }
    return sum;
}

// Tokens per microsecond of turn-taking with k drafted tokens: E(k) / (k steps and a pass, neither disturbed).
double planner::turns_rate(int32_t k, bool hopeful) const {
    const double us = k * profile_.step_us(1, false) + profile_.pass_us(k + 1, false, hopeful);
    return us > 0.0 ? expected_of(k) / us : 0.0;
}

// The best k; 0: none pays.
int32_t planner::turns_width(int32_t n_most, bool hopeful) const {
    int32_t best      = 0;
    double  best_rate = (1.0 + least_share) * turns_rate(0, hopeful);
    for (int32_t k = std::max(1, params_.n_min); k <= n_most; ++k) {
        const double r = turns_rate(k, hopeful);
        if (r > best_rate) {
            best      = k;
            best_rate = r;
        }
    }
    return best;
}

// With a good draft; how good it is shows only once it is tried.
bool planner::turns_could_pay() const {
    constexpr int32_t k_most = 4;
    const double      plain  = profile_.pass_us(1, false);
    double            sum    = 1.0;
    double            here   = 1.0;
    for (int32_t k = 1; k <= std::min(k_most, n_max_); ++k) {
        here *= std::max(good_guess, profile_.guesses().acceptance(k - 1));
        sum += here;
        if (sum * plain > (1.0 + least_share) * (k * profile_.step_us(1, false) + profile_.pass_us(k + 1, false))) {
            return true;
        }
    }
    return false;
}

// What turn-taking would bring, as the undisturbed times have it.
double planner::best_turns_rate() const {
    return turns_rate(turns_width(n_max_, false), false);
}

// No way of running ahead brings more: every pass finds its guesses ready, and the draft makes them meanwhile.
planner::bound planner::ahead_bound() const {
    bound        best;
    const double step = profile_.step_us(1, true);
    for (int32_t k = 1; k <= n_max_; ++k) {
        const double us   = std::max(profile_.pass_us(k + 1, true), k * step);
        const double rate = us > 0.0 ? expected_of(k) / us : 0.0;
        if (rate > best.rate) {
            best = {.rate = rate, .k = k};
        }
    }
    return best;
}

// What verified levels would bring at best, in tokens a pass: optimistic, as it takes the draft's nodes as given.
double planner::gain() const {
    const double r    = rate();
    const double base = profile_.pass_us(1, false);
    double       best = 0.0;
    double       sum  = 0.0;
    double       here = 1.0;
    for (int32_t i = 0; i < n_max_; ++i) {
        here *= profile_.guesses().acceptance(i);
        sum += here;
        best = std::max(best, sum - r * (profile_.pass_us(i + 2, beside()) - base));
    }
    return best;
}

bool planner::draft_pays(int64_t reading_us, int32_t n_tokens, int64_t elapsed_us) const {
    const double plain = profile_.pass_us(1, false);
    const double turns = best_turns_rate();
    if (plain == 0.0 || turns == 0.0) {
        return true; // nothing is known yet
    }
    const double saved = n_tokens * (plain - 1.0 / turns);
    return saved > double(reading_us) || double(reading_us) < trial_share * double(elapsed_us);
}

} // namespace duo
