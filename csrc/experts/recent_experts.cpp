#include "recent_experts.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {
constexpr float row_decay = 0.8f; // of what a row needed, with each row after it
} // namespace

recent_experts::recent_experts(const expert_shape & shape)
    : n_expert_(size_t(shape.n_expert)), uses_(size_t(shape.n_layer) * n_expert_) {
}

void recent_experts::score(int32_t layer, size_t, token_id, std::span<float> out) const {
    std::ranges::copy(std::span(uses_).subspan(size_t(layer) * n_expert_, n_expert_), out.begin());
}

void recent_experts::learn(int32_t layer, std::span<const token_id>, const expert_choice & choice) {
    const std::span<float> uses = uses_of(layer);
    const float            old  = std::pow(row_decay, float(choice.n_rows()));
    for (float & u : uses) {
        u *= old;
    }
    for (const int32_t expert : choice.experts) {
        uses[size_t(expert)] += 1.0f;
    }
}

} // namespace duo
