#include "mirostat.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace duo {

namespace {
constexpr size_t n_estimated = 100; // tokens from which version 1 estimates Zipf's exponent
}

void mirostat::reconsider(std::span<const token_id> /*text*/, std::span<float> logits) {
    if (!weigh(logits)) {
        return;
    }
    const double most  = *std::max_element(p_.begin(), p_.end());
    const double least = std::min(most, keeps_by_rank() ? least_by_rank() : std::exp2(-limit_));
    double       sum   = 0.0;
    for (size_t i = 0; i < p_.size(); ++i) {
        if (p_[i] < least) {
            p_[i]     = 0.0;
            logits[i] = -std::numeric_limits<float>::infinity();
        }
        sum += p_[i];
    }
    for (double & p : p_) {
        p /= sum;
    }
}

// The chances of the row's tokens. False: there are none.
bool mirostat::weigh(std::span<const float> logits) {
    p_.assign(logits.begin(), logits.end());
    for (const auto & [token, bias] : params_.logit_bias) {
        if (token >= 0 && size_t(token) < p_.size()) {
            p_[size_t(token)] += double(bias);
        }
    }
    const double best = *std::max_element(p_.begin(), p_.end());
    if (!std::isfinite(best)) {
        std::fill(p_.begin(), p_.end(), 0.0);
        return false;
    }
    double sum = 0.0;
    for (double & p : p_) {
        p = std::exp((p - best) / double(params_.temp));
        sum += p;
    }
    for (double & p : p_) {
        p /= sum;
    }
    return true;
}

// A token that had no chance was forced by somebody else, and says nothing of the limit.
void mirostat::learn(token_id chosen) {
    if (chosen >= 0 && size_t(chosen) < p_.size() && p_[size_t(chosen)] > 0.0) {
        limit_ -= double(params_.eta) * (-std::log2(p_[size_t(chosen)]) - double(params_.tau));
    }
}

// Version 1: the chance of the last of the k best, k being so many that the surprise stays at the limit if the chances
// follow Zipf's law with the exponent that the best ones suggest.
double mirostat::least_by_rank() {
    best_.resize(std::min(p_.size(), n_estimated));
    std::partial_sort_copy(p_.begin(), p_.end(), best_.begin(), best_.end(), std::greater<>());
    double sum_tb = 0.0;
    double sum_tt = 0.0;
    for (size_t i = 0; i + 1 < best_.size() && best_[i + 1] > 0.0; ++i) {
        const double t = std::log(double(i + 2) / double(i + 1));
        sum_tb += t * std::log(best_[i] / best_[i + 1]);
        sum_tt += t * t;
    }
    const double s       = sum_tt > 0.0 ? sum_tb / sum_tt : 1.0;
    const double epsilon = s - 1.0;
    const double n       = double(p_.size());
    const double k       = std::pow(epsilon * std::exp2(limit_) / (1.0 - std::pow(n, -epsilon)), 1.0 / s);
    const auto   n_kept  = std::isfinite(k) ? size_t(std::clamp(k, 1.0, n)) : p_.size();
    if (n_kept > best_.size()) {
        best_.resize(n_kept);
        std::partial_sort_copy(p_.begin(), p_.end(), best_.begin(), best_.end(), std::greater<>());
    }
    return best_[n_kept - 1];
}

} // namespace duo
