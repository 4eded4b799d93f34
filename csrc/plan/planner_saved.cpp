// What the planner has learned, as numbers for a file: the profile, then each way of generating.
#include <algorithm>
#include <cmath>

#include "planner.h"

namespace duo {

namespace {
constexpr size_t n_key = std::tuple_size_v<stance_key>;
// After the key: stance, passes in it, lengths of the last rest and the last turns, thousandths of turns_gain.
constexpr size_t n_each    = n_key + 5;
constexpr double n_longest = 1e6; // passes
} // namespace

std::vector<double> planner::saved() const {
    std::vector<double> out = profile_.saved();
    for (const auto & [key, e] : stances_.memory().all()) {
        if (key != stance_key{}) { // the empty key belongs to no text
            out.insert(out.end(), key.begin(), key.end());
            // A trial that is not over does not count as a stance.
            const bool trial = e.stance_now == stance::ahead && e.on_trial && e.n_in < n_reliable;
            out.insert(out.end(), {double(trial ? stance::by_turn : e.stance_now), double(trial ? 0 : e.n_in),
                                   double(e.n_rest), double(e.n_turns), std::round(1000.0 * e.turns_gain)});
        }
    }
    return out;
}

void planner::restore(std::span<const double> numbers) {
    const size_t n_profile = profile_.saved().size();
    if (numbers.size() < n_profile || (numbers.size() - n_profile) % n_each != 0) {
        return;
    }
    const auto kept  = numbers.subspan(n_profile);
    const bool whole = std::all_of(kept.begin(), kept.end(), [](double x) {
        return std::isfinite(x) && x == std::floor(x) && std::abs(x) <= n_longest;
    });
    if (!whole || !profile_.restore(numbers.first(n_profile))) {
        return;
    }
    for (size_t i = 0; i < kept.size(); i += n_each) {
        stance_key key;
        std::transform(kept.begin() + ptrdiff_t(i), kept.begin() + ptrdiff_t(i + n_key), key.begin(),
                       [](double x) { return int32_t(x); });
        const auto   of           = kept.subspan(i + n_key);
        const double saved_stance = of[0];
        if (saved_stance >= 0.0 && saved_stance <= double(stance::rest)) {
            stance_history e;
            e.stance_now = stance(saved_stance);
            e.n_in       = std::max(0, int32_t(of[1]));
            e.n_rest     = std::max(0, int32_t(of[2]));
            e.n_turns    = std::max(0, int32_t(of[3]));
            e.turns_gain = std::clamp(of[4] / 1000.0, 1.0, stance_history::turns_gain_most);
            stances_.memory().put(key, e);
        }
    }
}

} // namespace duo
