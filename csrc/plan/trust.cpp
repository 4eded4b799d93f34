#include "trust.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {
constexpr double memory_of_guesses = 0.995; // weight of a guess fades by this with each later one
constexpr double prior             = 4.0;   // information in the first assumption: about as of six good guesses
constexpr double most_weight       = 4.0 / (1.0 - memory_of_guesses); // more than the weight can become
constexpr double least             = -7.0;  // a smaller estimate counts as this: one guess must not say more than many
constexpr double surest            = -1e-3; // and a larger one as this
} // namespace

// One Newton step on the log-likelihood of the outcome, as a function of the power's logarithm. The weight is Fisher's
// information of the guesses so far.
void trust::on_guess(double log_estimate, bool right) {
    const double x    = power_ * std::clamp(log_estimate, least, surest); // log of the chance
    const double odds = std::exp(x) / -std::expm1(x);
    weight_           = memory_of_guesses * weight_ + x * x * odds;
    const double step = (right ? x : -x * odds) / (weight_ + prior);
    power_            = std::clamp(power_ * std::exp(step), least_power, most_power);
}

double trust::estimate_for(double chance) const {
    return chance <= 0.0 ? 0.0 : std::pow(std::min(chance, 1.0), 1.0 / power_);
}

trust trust::restored(double power, double weight) {
    trust t;
    t.power_  = std::clamp(power, least_power, most_power);
    t.weight_ = std::clamp(weight, 0.0, most_weight);
    return t;
}

} // namespace duo
