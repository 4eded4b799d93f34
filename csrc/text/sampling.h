// How a token is chosen, as data, and the noise that target and draft share.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/messages.h"

namespace duo {

// How the target decides about guesses (acceptance.h).
enum class accept_rule : uint8_t {
    noise,     // it chooses with the noise that it shares with the draft; a guess is right if it is that token
    rejection, // it rejects drawn guesses as often as its distribution requires (Leviathan et al., arXiv 2211.17192)
    typical,   // lossy: a guess that is not too improbable is accepted (Medusa, arXiv 2401.10774)
    top_n,     // lossy: a guess among the most probable tokens is accepted
};

// Texts whose guesses are counted together. The same draft is right more or less often, and knows more or less well how
// often, in texts of another kind.
enum class guess_kind : uint8_t { greedy, noise, rejection, typical, top_n };

constexpr size_t n_guess_kinds = 5;

// llama.cpp's filter chain in llama.cpp's order: logit bias, penalties, DRY, top-n-sigma, top-k, typical-p, top-p,
// min-p, XTC, temperature.
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

    float typical_p         = 1.0f;  // 1: off
    float top_n_sigma       = -1.0f; // <= 0: off
    float xtc_probability   = 0.0f;  // 0: off
    float xtc_threshold     = 0.1f;  // above 0.5: off
    float dynatemp_range    = 0.0f;  // the temperature is at most this far from temp; 0: off
    float dynatemp_exponent = 1.0f;

    float   dry_multiplier     = 0.0f;  // 0: off
    float   dry_base           = 1.75f; // below 1: off
    int32_t dry_allowed_length = 2;     // shorter repetitions have no penalty
    int32_t dry_penalty_last_n = 64;    // tokens that are searched for repetitions; 0: off, -1: all

    std::vector<std::string> dry_sequence_breakers{"\n", ":", "\"", "*"}; // a repetition ends at these

    accept_rule accept              = accept_rule::noise;
    float       posterior_threshold = 0.09f; // typical: probability from which every guess is accepted
    float       posterior_alpha     = 0.3f;  // typical: the limit is lower where the entropy is high
    int32_t     accept_top          = 3;     // top_n: guesses among so many most probable tokens are accepted

    std::vector<std::pair<token_id, float>> logit_bias{}; // added to the logit

    std::string grammar{};     // GBNF that the generated text follows; empty: none
    int32_t     n_prompt = -1; // tokens before the part that the grammar applies to; -1: the request's prompt

    int32_t n_left_out = 0; // tokens that are missing in what is given of the text

    bool operator==(const sampling_params &) const = default;

    // Of the token after the text, for the noise.
    [[nodiscard]] size_t position_after(size_t n_text) const { return n_text + size_t(n_left_out); }

    [[nodiscard]] bool greedy() const { return temp <= 0.0f && dynatemp_range <= 0.0f; }

    // Without a temperature there is one right token, and all rules are the same.
    [[nodiscard]] accept_rule rule() const { return greedy() ? accept_rule::noise : accept; }

    [[nodiscard]] guess_kind kind() const {
        return greedy() ? guess_kind::greedy : guess_kind(size_t(guess_kind::noise) + size_t(accept));
    }

    [[nodiscard]] bool penalised() const {
        return repeat_last_n != 0 && (repeat_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f);
    }

    [[nodiscard]] bool dry() const { return dry_multiplier != 0.0f && dry_base >= 1.0f && dry_penalty_last_n != 0; }
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

// Whether XTC removes the best candidates at this position: the same for the draft and for passes of any width.
inline bool xtc_applies(const sampling_params & s, uint64_t pos) noexcept {
    constexpr uint64_t no_token_at_all = ~uint64_t(0);
    return s.xtc_probability > 0.0f && s.xtc_threshold <= 0.5f &&
           noise_uniform(s.seed, pos, no_token_at_all) <= double(s.xtc_probability);
}

// Standard Gumbel: argmax of (log p + noise) is a draw from p, and two models that use the same noise tend to draw the
// same token: with probability >= (1 - TV) / (1 + TV) (Daliri et al., arXiv 2408.07978).
inline float gumbel_noise(uint64_t seed, uint64_t pos, token_id token) noexcept {
    return float(-std::log(-std::log(noise_uniform(seed, pos, uint64_t(token)))));
}

} // namespace duo
