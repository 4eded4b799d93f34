#include "guess_record.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace duo {

namespace {
constexpr double prior_guess = 0.7; // acceptance before anything was seen, worth one observation
// By the n-gram's length: shares of right guesses in source code that has no earlier version in the prompt
// (benchmarks/measure_sources.py).
constexpr double prior_ngram[] = {0.5, 0.57, 0.65, 0.7, 0.79, 0.89};
constexpr double memory_usual  = 0.97; // weight of an observation fades by this with each later one
constexpr double memory_bin    = 0.99;
constexpr double own_weight    = 4.0;  // observations that the draft's own estimate is worth
constexpr double age_weight    = 8.0;  // observations of an age that those of all ages are worth
constexpr double hope_weight   = 16.0; // observations of an age before it is given up
} // namespace

void odds::add(bool right, double memory) {
    yes = yes * memory + (right ? 1.0 : 0.0);
    no  = no * memory + (right ? 0.0 : 1.0);
}

size_t guess_record::place_of(int32_t age) {
    return size_t(std::clamp(age, 0, n_ages - 1));
}

void guess_record::on_guess(int32_t i, bool right, bool fresh, int32_t age) {
    if (i >= 0 && i < n_draft_cap) {
        level_[size_t(i)].add(right, memory_usual);
    }
    if (i == 0 && fresh) {
        fresh_.add(right, memory_usual);
    }
    if (age >= 0) {
        best_of_age_[place_of(age)].add(right, memory_bin);
    }
}

size_t guess_record::length_of(int32_t n_match) {
    constexpr int32_t least[] = {3, 4, 6, 9, 12}; // tokens, of all lengths but the first
    return size_t(std::upper_bound(std::begin(least), std::end(least), n_match) - std::begin(least));
}

void guess_record::on_ngram(int32_t n_match, int32_t i, bool right) {
    if (i >= 0) {
        ngram_[length_of(n_match)][size_t(std::min(i, n_deep - 1))].add(right, memory_usual);
    }
}

// Half a unit of log-odds wide.
int32_t guess_record::bin(float logp) {
    const double p = std::clamp(std::exp(double(logp)), 1e-4, 1.0 - 1e-4);
    return std::clamp(int32_t(std::lround(2.0 * std::log(p / (1.0 - p)))) + n_bins / 2, 0, n_bins - 1);
}

void guess_record::on_child(float logp, bool right, int32_t age) {
    if (age >= 0) {
        bin_of_age_[place_of(age)][size_t(bin(logp))].add(right, memory_bin);
    }
    bin_[size_t(bin(logp))].add(right, memory_bin);
}

// The older the states that a head has, the more it may overrate its guesses.
double guess_record::chance(float logp, int32_t age) const {
    const auto   i    = size_t(bin(logp));
    const double all  = bin_[i].share(std::exp(double(logp)), own_weight);
    const double aged = age < 0 ? all : bin_of_age_[place_of(age)][i].share(all, age_weight);
    return std::clamp(aged, 0.001, 0.995);
}

// An age with few observations is estimated from the one before it, which is worth so many.
double guess_record::of_age(int32_t age, double weight) const {
    double a = prior_guess;
    for (size_t i = 0; i <= place_of(age); ++i) {
        a = best_of_age_[i].share(a, weight);
    }
    return a;
}

double guess_record::acceptance_of_age(int32_t age) const {
    return of_age(age, 1.0);
}

double guess_record::hope_of_age(int32_t age) const {
    return of_age(age, hope_weight);
}

void guess_record::on_choice(std::span<const float> logp, int32_t right) {
    if (logp.empty()) {
        return;
    }
    estimates_.resize(logp.size());
    sharpness::apply(sharp_.power(), logp, estimates_); // as the draft has them
    const auto best = std::ranges::max_element(estimates_) - estimates_.begin();
    trust_.on_guess(double(estimates_[size_t(best)]), right == best);
    sharp_.on_choice(logp, right);
}

// A level with few observations is estimated from the level before it.
double guess_record::acceptance(int32_t i) const {
    double a = prior_guess;
    for (int32_t j = 0; j <= std::min(i, n_draft_cap - 1); ++j) {
        a = acceptance(j, a);
    }
    return a;
}

double guess_record::acceptance(int32_t i, double above) const {
    return i < n_draft_cap ? level_[size_t(i)].share(above, 1.0) : above;
}

double guess_record::acceptance_fresh() const {
    return fresh_.share(acceptance(0), 1.0);
}

double guess_record::ngram_chance(int32_t n_match, int32_t i) const {
    const size_t length = length_of(n_match);
    double       a      = prior_ngram[length];
    for (int32_t j = 0; j <= std::min(i, n_deep - 1); ++j) {
        a = ngram_[length][size_t(j)].share(a, 1.0);
    }
    return std::clamp(a, 0.001, 0.995);
}

} // namespace duo
