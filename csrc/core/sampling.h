// How a token is chosen, as data, and the noise that target and draft share.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "messages.h"

namespace duo {

// llama.cpp's filter chain in llama.cpp's order: logit bias, penalties, top-k, top-p, min-p, temperature.
struct sampling_params {
    float    temp              = 0.8f;  // <= 0: argmax
    int32_t  top_k             = 40;    // <= 0: off
    float    top_p             = 0.95f; // 1: off
    float    min_p             = 0.05f; // 0: off
    float    repeat_penalty    = 1.0f;  // 1: off
    float    presence_penalty  = 0.0f;  // 0: off
    float    frequency_penalty = 0.0f;  // 0: off
    int32_t  repeat_last_n     = 64;    // tokens that the penalties look back
    uint64_t seed              = 0;     // key of the noise
    bool     ignore_eos        = false; // never choose an end-of-generation token

    std::vector<std::pair<token_id, float>> logit_bias{}; // added to the logit

    std::string grammar{};     // GBNF that the generated text follows; empty: none
    int32_t     n_prompt = -1; // tokens before the part that the grammar applies to; -1: the request's prompt

    bool operator==(const sampling_params &) const = default;

    [[nodiscard]] bool greedy() const { return temp <= 0.0f; }

    [[nodiscard]] bool penalised() const {
        return repeat_last_n != 0 && (repeat_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f);
    }
};

// Uniform in (0, 1), a function of (seed, position, token) alone. Two rounds of the splitmix64 finaliser (Steele et al.
// 2014) over a Weyl-spaced counter.
inline double noise_uniform(uint64_t seed, uint64_t pos, uint64_t token) noexcept {
    const auto mix = [](uint64_t x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
    };
    const uint64_t row = mix(seed + 0x9e3779b97f4a7c15ull * (pos + 1));
    const uint64_t bit = mix(row + 0xd1b54a32d192ed03ull * (token + 1));
    return (double(bit >> 11) + 0.5) * 0x1.0p-53;
}

// Standard Gumbel: argmax of (log p + noise) is a draw from p, and two models that use the same noise tend to draw the
// same token: with probability >= (1 - TV) / (1 + TV) (Daliri et al., arXiv 2408.07978).
inline float gumbel_noise(uint64_t seed, uint64_t pos, token_id token) noexcept {
    return float(-std::log(-std::log(noise_uniform(seed, pos, uint64_t(token)))));
}

} // namespace duo
