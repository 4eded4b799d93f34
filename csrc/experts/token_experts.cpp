#include "token_experts.h"

#include <algorithm>

namespace duo {

namespace {
constexpr float use_decay = 0.7f; // of a token's uses, each time that it comes
} // namespace

token_experts::token_experts(const expert_shape & shape, size_t n_bytes)
    : n_layer_(size_t(shape.n_layer)), n_kept_(size_t(std::min(2 * shape.n_used, shape.n_expert))),
      n_places_(std::max<size_t>(1, n_bytes / (sizeof(place) + n_layer_ * n_kept_ * sizeof(use)))) {
}

void token_experts::score(int32_t layer, size_t, token_id token, std::span<float> out) const {
    std::ranges::fill(out, 0.0f);
    if (token < 0 || at(token) >= places_.size() || places_[at(token)].token != token) {
        return;
    }
    const auto uses = std::span(places_[at(token)].uses).subspan(size_t(layer) * n_kept_, n_kept_);
    for (const use & u : uses) {
        if (u.expert >= 0 && size_t(u.expert) < out.size()) {
            out[size_t(u.expert)] = u.weight;
        }
    }
}

void token_experts::learn(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice) {
    for (size_t row = 0; row < choice.n_rows(); ++row) {
        if (tokens[row] < 0) {
            continue;
        }
        const std::span<use> uses = uses_of(tokens[row], layer);
        for (use & u : uses) {
            u.weight *= use_decay;
        }
        for (const int32_t expert : choice.of(row)) {
            note(uses, expert);
        }
    }
}

std::span<token_experts::use> token_experts::uses_of(token_id token, int32_t layer) {
    if (at(token) >= places_.size()) {
        places_.resize(at(token) + 1);
    }
    place & p = places_[at(token)];
    if (p.token != token) {
        p.token = token;
        p.uses.assign(n_layer_ * n_kept_, use());
    }
    return std::span(p.uses).subspan(size_t(layer) * n_kept_, n_kept_);
}

void token_experts::note(std::span<use> uses, int32_t expert) {
    const auto same  = std::ranges::find(uses, expert, &use::expert);
    const auto least = same != uses.end() ? same : std::ranges::min_element(uses, {}, &use::weight);
    if (same == uses.end()) {
        *least = {.expert = expert};
    }
    least->weight += 1.0f;
}

} // namespace duo
