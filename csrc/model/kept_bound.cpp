#include "kept_bound.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {

// Top-p's sum is a float of at least 1, the best token's part, and grows from the best token to the worst. What is less
// than 2^-24 does not change it any more; that is 16.7 nats below the best.
constexpr double n_nats_summed = 17.0;

} // namespace

kept_bound kept_bound::of(const sampling_params & s, size_t n_vocab, float best, double reach, bool xtc, bool races) {
    kept_bound b{.n_most = s.top_k > 0 ? std::min(size_t(s.top_k), n_vocab) : n_vocab};
    b.n_least          = races ? n_raced : std::min(n_raced, b.n_most); // a steep row is read once, too
    const bool typical = s.typical_p < 1.0f;                            // it looks at all, and may drop the best
    const bool sums    = s.top_p < 1.0f;
    const bool sigma   = s.top_n_sigma > 0.0f;
    b.in_order = b.n_most < n_vocab || typical || sums || sigma || s.min_p > 0.0f || xtc || s.dynatemp_range > 0.0f;
    if (!std::isfinite(best)) { // a model that overflows: the first in order wins, as no score tells more
        b.in_order = true;
        return b;
    }
    // The filters decide at the edge, so it may be a little low, but not too high by a rounding.
    const auto at = [best](double nats_below) {
        return float(double(best) - nats_below - 0.01 - 1e-6 * std::abs(double(best)));
    };
    if (sigma) {
        b.floor = at(reach);
    }
    if (!typical && (sums || s.min_p > 0.0f)) {
        const float end = at(sums ? n_nats_summed : -std::log(double(s.min_p)));
        b.whole         = b.n_most <= b.n_least || !sums || end <= b.floor;
        b.floor         = std::max(b.floor, end);
    }
    return b;
}

} // namespace duo
