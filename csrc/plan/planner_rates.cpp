// What each stance would bring, by what was measured.
#include <algorithm>

#include "planner.h"

namespace duo {

namespace {
constexpr double good_guess = 0.9; // acceptance
} // namespace

const planner::outlook & planner::ways() const {
    if (outlook_at_ != profile_.n_changes()) {
        outlook_    = find_outlook();
        outlook_at_ = profile_.n_changes();
    }
    return outlook_;
}

// The rate of turn-taking with k guesses is E(k) / (k steps + a pass), each undisturbed, with E(k) = 1 + a_0 + a_0 a_1
// + ... The rate of running ahead with k guesses is E(k) / max(pass, k steps), both measured side by side. The guesses
// of a draft head are younger in turn-taking, so there it has an E(k) of its own.
planner::outlook planner::find_outlook() const {
    outlook      o;
    const double plain       = profile_.pass_us(1, false);
    const double step        = profile_.step_us(1, false);
    const double step_beside = profile_.step_us(1, true);
    o.hopeful.rate = o.turns.rate = plain > 0.0 ? 1.0 / plain : 0.0;
    const double worth            = (1.0 + least_share) * o.turns.rate; // the first k has to exceed it
    const auto   better           = [](way & best, int32_t k, double tokens, double us, double worth) {
        if (us > 0.0 && tokens / us > (best.k == 0 ? worth : best.rate)) {
            best = {.k = k, .rate = tokens / us};
        }
    };
    double sum     = 1.0;
    double reached = 1.0;
    double a       = 0.0;
    double again   = 0.0; // rows that the next pass probably evaluates again (undo_kind::copy)
    for (int32_t k = 1; k <= n_max_; ++k) {
        a = guesses().has_ages() ? acceptance(k - 1, k - 1)
            : k == 1             ? guesses().acceptance(0)
                                 : guesses().acceptance(k - 1, a);
        again += copy_ ? k * reached * (1.0 - a) : 0.0;
        reached *= a;
        sum += reached;
        const auto more = [&](bool beside) {
            return again * std::max(0.0, profile_.pass_us(k + 2, beside) - profile_.pass_us(k + 1, beside));
        };
        if (k >= params_.n_min) {
            better(o.hopeful, k, sum, n_steps(k) * step + profile_.pass_us(k + 1, false) + more(false), worth);
            better(o.turns, k, sum, n_steps(k) * step + profile_.pass_us(k + 1, false, false) + more(false), worth);
        }
        better(o.ahead, k, tokens_ahead(k, sum),
               std::max(profile_.pass_us(k + 1, true) + more(true), n_steps(k) * step_beside), 0.0);
    }
    return o;
}

// Of the best guess at a level, 0..1. age: of a draft head's guess.
double planner::acceptance(int32_t level, int32_t age) const {
    return guesses().has_ages() ? guesses().acceptance_of_age(age) : guesses().acceptance(level);
}

// E(k) of running ahead. tokens: that of turn-taking. A draft head makes its guesses while a pass is under way, and the
// tokens of that pass are so many steps on its own states.
double planner::tokens_ahead(int32_t k, double tokens) const {
    if (!guesses().has_ages()) {
        return tokens;
    }
    const auto lag     = int32_t(tokens + 0.5);
    double     sum     = 1.0;
    double     reached = 1.0;
    for (int32_t i = 0; i < k; ++i) {
        reached *= guesses().acceptance_of_age(lag + i);
        sum += reached;
    }
    return sum;
}

// True if turn-taking could pay with a good draft. How good the draft is shows only when it is tried.
bool planner::turns_could_pay() const {
    constexpr int32_t k_most  = 16;
    const double      plain   = profile_.pass_us(1, false);
    double            sum     = 1.0;
    double            reached = 1.0;
    for (int32_t k = 1; k <= std::min(k_most, n_max_); ++k) {
        reached *= std::max(good_guess, guesses().acceptance(k - 1));
        sum += reached;
        if (sum * plain >
            (1.0 + least_share) * (n_steps(k) * profile_.step_us(1, false) + profile_.pass_us(k + 1, false))) {
            return true;
        }
    }
    return false;
}

// What verification would bring at best, in tokens per pass. It is optimistic, as it assumes that the draft's nodes are
// ready.
double planner::gain() const {
    const double r       = rate();
    const double base    = profile_.pass_us(1, false);
    double       best    = 0.0;
    double       sum     = 0.0;
    double       reached = 1.0;
    double       a       = 0.0;
    for (int32_t i = 0; i < n_max_; ++i) {
        a = i == 0 ? guesses().acceptance(0) : guesses().acceptance(i, a);
        reached *= a;
        sum += reached;
        best = std::max(best, sum - r * (profile_.pass_us(i + 2, beside()) - base));
    }
    return best;
}

bool planner::draft_pays(int64_t reading_us, int32_t n_tokens, int64_t elapsed_us) const {
    const double plain = profile_.pass_us(1, false);
    const double turns = ways().turns.rate;
    if (plain == 0.0 || turns == 0.0) {
        return true; // nothing is known yet
    }
    return draft_saves(n_tokens) > double(reading_us) || double(reading_us) < trial_share * double(elapsed_us);
}

double planner::draft_saves(int32_t n_tokens) const {
    const double turns = ways().turns.rate;
    return turns == 0.0 ? 0.0 : n_tokens * (profile_.pass_us(1, false) - 1.0 / turns);
}

} // namespace duo
