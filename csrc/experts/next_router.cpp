#include "next_router.h"

#include <algorithm>

namespace duo {

void next_router::hear(int32_t layer, std::span<const float> scores) {
    said & s = last_[size_t(layer) % last_.size()];
    s.layer  = layer;
    s.scores.assign(scores.begin(), scores.end());
}

void next_router::forget(int32_t layer) {
    last_[size_t(layer) % last_.size()].layer = -1;
}

void next_router::forget() {
    for (said & s : last_) {
        s.layer = -1;
    }
}

// Of what a router says only the order counts, and it may be negative.
void next_router::score(int32_t layer, size_t row, token_id, std::span<float> out) const {
    std::ranges::fill(out, 0.0f);
    if ((row + 1) * out.size() > n_numbers(layer)) {
        return;
    }
    const auto  of_row = std::span(of(layer).scores).subspan(row * out.size(), out.size());
    const float least  = std::ranges::min(of_row);
    std::ranges::transform(of_row, out.begin(), [least](float x) { return x - least; });
}

} // namespace duo
