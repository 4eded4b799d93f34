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
constexpr double memory        = 0.97; // weight of an observation fades by this with each later one
constexpr double memory_bin    = 0.99;
constexpr double own_weight    = 4.0; // observations that the draft's own estimate is worth
} // namespace

void odds::add(bool right, double memory) {
    yes = yes * memory + (right ? 1.0 : 0.0);
    no  = no * memory + (right ? 0.0 : 1.0);
}

void guess_record::on_guess(int32_t i, bool right, bool fresh) {
    if (i >= 0 && i < n_draft_cap) {
        level_[size_t(i)].add(right, memory);
    }
    if (i == 0 && fresh) {
        fresh_.add(right, memory);
    }
}

size_t guess_record::length_of(int32_t n_match) {
    constexpr int32_t least[] = {3, 4, 6, 9, 12}; // tokens, of all lengths but the first
    return size_t(std::upper_bound(std::begin(least), std::end(least), n_match) - std::begin(least));
}

void guess_record::on_ngram(int32_t n_match, int32_t i, bool right) {
    if (i >= 0) {
        ngram_[length_of(n_match)][size_t(std::min(i, n_deep - 1))].add(right, memory);
    }
}

// Half a unit of log-odds wide.
int32_t guess_record::bin(float logp) {
    const double p = std::clamp(std::exp(double(logp)), 1e-4, 1.0 - 1e-4);
    return std::clamp(int32_t(std::lround(2.0 * std::log(p / (1.0 - p)))) + n_bins / 2, 0, n_bins - 1);
}

void guess_record::on_child(float logp, bool right) {
    bin_[size_t(bin(logp))].add(right, memory_bin);
}

double guess_record::chance(float logp) const {
    return std::clamp(bin_[size_t(bin(logp))].share(std::exp(double(logp)), own_weight), 0.001, 0.995);
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
