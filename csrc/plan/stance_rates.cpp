#include "stance_rates.h"

#include <algorithm>

namespace duo {

namespace {
constexpr double least_share = 0.02; // a gain below this share of the rate is within the noise of measurement
constexpr double good_guess  = 0.9;  // acceptance
// Share of wrong guesses whose runner-up is right, so that the draft has prepared for it. Assumed: it is what
// tests/cpp/acceptance.txt shows of a published pair.
constexpr double runner_up = 0.5;
} // namespace

void stance_rates::begin(const rate_terms & terms) {
    terms_   = terms;
    ways_at_ = -1;
}

const stance_rates::ways & stance_rates::now() const {
    if (ways_at_ != profile_.n_changes()) {
        ways_    = find();
        ways_at_ = profile_.n_changes();
    }
    return ways_;
}

// The rate of turn-taking with k guesses is E(k) / (k steps + a pass), each undisturbed. The guesses of a draft head
// are younger then, so there it has an E(k) of its own.
stance_rates::ways stance_rates::find() const {
    ways         o;
    const auto   n    = double(terms_.n_texts);
    const double step = step_us(false);
    o.hopeful.rate = o.turns.rate = plain();
    const double worth            = (1.0 + least_share) * o.turns.rate; // the first k has to exceed it
    const auto   better           = [](way & best, int32_t k, double tokens, double us, double worth) {
        if (us > 0.0 && tokens / us > (best.k == 0 ? worth : best.rate)) {
            best = {.k = k, .rate = tokens / us};
        }
    };
    double sum     = 1.0;
    double reached = 1.0;
    double a       = 0.0;
    double again   = 0.0; // rows of a text that the next pass probably evaluates again
    for (int32_t k = 1; k <= terms_.n_max; ++k) {
        a = guesses().has_ages() ? acceptance(k - 1, k - 1)
            : k == 1             ? guesses().acceptance(0)
                                 : guesses().acceptance(k - 1, a);
        again += terms_.copy ? k * reached * (1.0 - a) : 0.0;
        reached *= a;
        sum += reached;
        const auto more = [&](bool side) {
            const int32_t n_rows = terms_.n_texts * (k + 1);
            return n * again * std::max(0.0, profile_.pass_us(n_rows + 1, side) - profile_.pass_us(n_rows, side));
        };
        if (k >= terms_.n_min) {
            better(o.hopeful, k, n * sum, n_steps(k) * step + pass_us(k, false) + more(false), worth);
            better(o.turns, k, n * sum, n_steps(k) * step + pass_us(k, false, false) + more(false), worth);
        }
        const double right    = reached * guesses().acceptance(k, a); // all guesses, and the next one, too
        const double foreseen = guesses().has_ages() ? 1.0 : runner_up + (1.0 - runner_up) * right;
        find_ahead(o.ahead, k, tokens_ahead(k, sum), foreseen, more(true));
    }
    return o;
}

// Running ahead with k guesses. Where the draft has foreseen a pass's outcome, the next pass finds its guesses ready.
// Elsewhere that pass either has no guesses or waits for them. tokens: of a pass with guesses, for each text. more_us:
// what such a pass costs beside its rows.
void stance_rates::find_ahead(way & best, int32_t k, double tokens, double foreseen, double more_us) const {
    const auto   n        = double(terms_.n_texts);
    const double pass     = pass_us(k, true) + more_us;
    const double ready    = std::max(pass, n_steps(k) * step_us(true));
    const double missed   = 1.0 - foreseen;
    const double empty_us = foreseen * ready + missed * pass_us(0, true);
    const double wait_us  = foreseen * ready + missed * (n_steps(k) * step_us(false) + pass);
    if (pass <= 0.0 || empty_us <= 0.0) {
        return;
    }
    const double rate = n * std::max((foreseen * tokens + missed) / empty_us, tokens / wait_us);
    best              = best.k == 0 || rate > best.rate ? way{.k = k, .rate = rate} : best;
}

double stance_rates::acceptance(int32_t level, int32_t age) const {
    return guesses().has_ages() ? guesses().acceptance_of_age(age) : guesses().acceptance(level);
}

// E(k) of running ahead. tokens: that of turn-taking. A draft head makes its guesses while a pass is under way, and the
// tokens of that pass are so many steps on its own states.
double stance_rates::tokens_ahead(int32_t k, double tokens) const {
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

bool stance_rates::turns_could_pay() const {
    double sum     = 1.0;
    double reached = 1.0;
    for (int32_t k = 1; k <= std::min(16, terms_.n_max); ++k) {
        reached *= std::max(good_guess, guesses().acceptance(k - 1));
        sum += reached;
        if (sum * plain_us() > (1.0 + least_share) * (n_steps(k) * step_us(false) + pass_us(k, false))) {
            return true;
        }
    }
    return false;
}

double stance_rates::gain(double r, bool beside) const {
    const double base    = plain_us();
    double       best    = 0.0;
    double       sum     = 0.0;
    double       reached = 1.0;
    double       a       = 0.0;
    for (int32_t i = 0; i < terms_.n_max; ++i) {
        a = i == 0 ? guesses().acceptance(0) : guesses().acceptance(i, a);
        reached *= a;
        sum += reached;
        best = std::max(best, sum - r * (pass_us(i + 1, beside) - base) / terms_.n_texts);
    }
    return best;
}

double stance_rates::price_of_guess(double r) const {
    const int32_t k = std::max(1, now().hopeful.k);
    return r * (step_us(false) + std::max(0.0, pass_us(k, false) - pass_us(k - 1, false))) / terms_.n_texts;
}

double stance_rates::price_of_rows(double r, int32_t n) const {
    return r * std::max(0.0, pass_us(n, false) - pass_us(0, false)) / terms_.n_texts;
}

double stance_rates::saved_us(int32_t n_tokens) const {
    const double turns = now().turns.rate;
    return turns == 0.0 ? 0.0 : n_tokens * (plain_us() / terms_.n_texts - 1.0 / turns);
}

} // namespace duo
