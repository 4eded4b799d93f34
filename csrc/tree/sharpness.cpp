#include "sharpness.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {
constexpr double memory     = 0.995;                // weight of a choice fades by this with each later one
constexpr double doubt      = 10.0;                 // telling choices before the power has moved half of the way
constexpr double most       = 4.0 / (1.0 - memory); // more than the weight can become
constexpr double least_part = 1e-3;   // a smaller chance counts as this: one choice must not say more than many
constexpr float  nothing    = -60.0f; // log of the chance of a guess that was dropped

// Log of the chance of a sibling, for the sum over them.
double bounded(float logp) {
    return std::clamp(double(logp), std::log(least_part), 0.0);
}

// The same of what is left beside them.
double rest_of(std::span<const float> logp) {
    double left = 1.0;
    for (const float x : logp) {
        left -= x > nothing ? std::exp(std::min(0.0, double(x))) : 0.0;
    }
    return std::log(std::max(left, least_part));
}

// Calls f(logp) for each sibling and for what is left.
template <typename F> void each(std::span<const float> logp, const F & f) {
    for (const float x : logp) {
        if (x > nothing) {
            f(bounded(x));
        }
    }
    f(rest_of(logp));
}
} // namespace

// One Newton step on the log-likelihood of the choice, as a function of the power's logarithm. The weight is the
// curvature of the choices so far.
void sharpness::on_choice(std::span<const float> logp, int32_t i) {
    const double s      = power_;
    double       sum    = 0.0;
    double       mean   = 0.0;
    double       square = 0.0;
    each(logp, [&](double x) {
        const double p = std::exp(s * x);
        sum += p;
        mean += p * x;
        square += p * x * x;
    });
    mean /= sum;
    const double spread = std::max(0.0, square / sum - mean * mean);
    // A guess that was dropped is a part of what is left.
    const bool   named  = i >= 0 && logp[size_t(i)] > nothing;
    const double chosen = named ? bounded(logp[size_t(i)]) : rest_of(logp);
    weight_             = memory * weight_ + s * s * spread;
    power_ = std::clamp(s * std::exp(s * (chosen - mean) / (weight_ + doubt)), 1.0 / most_power, most_power);
}

int16_t sharpness::order() const {
    return int16_t(std::lround(1000.0 * std::log(power_)));
}

double sharpness::power_of(int16_t order) {
    return std::exp(1e-3 * double(order));
}

sharpness sharpness::restored(double power, double weight) {
    sharpness s;
    s.power_  = std::clamp(power, 1.0 / most_power, most_power);
    s.weight_ = std::clamp(weight, 0.0, most);
    return s;
}

void sharpness::apply(double power, std::span<const float> logp, std::span<float> out) {
    double sum = 0.0;
    each(logp, [&](double x) { sum += std::exp(power * x); });
    const double log_sum = std::log(sum);
    std::transform(logp.begin(), logp.end(), out.begin(),
                   [&](float x) { return x > nothing ? std::max(float(power * double(x) - log_sum), nothing) : x; });
}

} // namespace duo
