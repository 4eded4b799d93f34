#include "adaptive_p.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {
// As in llama.cpp: quadratic near the preferred chance, linear far from it.
constexpr double width     = 0.3;
constexpr double peak      = 5.0;
constexpr double steepness = 10.0;
} // namespace

adaptive_p::adaptive_p(float target, float decay)
    : target_(std::clamp(double(target), 0.0, 1.0)), decay_(std::clamp(double(decay), 0.0, 0.99)),
      sum_(target_ / (1.0 - decay_)), weight_(1.0 / (1.0 - decay_)) {
}

double adaptive_p::preferred() const {
    return std::clamp(2.0 * target_ - sum_ / weight_, 0.0, 1.0);
}

void adaptive_p::reconsider(std::span<const token_id> /*text*/, std::span<float> logits) {
    p_.assign(logits.size(), -1.0f);
    const float best = *std::max_element(logits.begin(), logits.end());
    if (!std::isfinite(best)) {
        return; // whoever chooses says why
    }
    double sum = 0.0;
    for (const float x : logits) {
        sum += std::exp(double(x) - double(best));
    }
    const double wanted = preferred();
    for (size_t i = 0; i < p_.size(); ++i) {
        if (std::isfinite(logits[i])) {
            p_[i]            = float(std::exp(double(logits[i]) - double(best)) / sum);
            const double far = std::abs(double(p_[i]) - wanted) / width;
            logits[i]        = float(peak - steepness * far * far / (1.0 + far));
        }
    }
}

// A token that was ruled out was forced by somebody else, and says nothing.
void adaptive_p::learn(token_id chosen) {
    if (chosen >= 0 && size_t(chosen) < p_.size() && p_[size_t(chosen)] >= 0.0f) {
        sum_    = double(p_[size_t(chosen)]) + decay_ * sum_;
        weight_ = 1.0 + decay_ * weight_;
    }
}

} // namespace duo
