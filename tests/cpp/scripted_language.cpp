#include "scripted_language.h"

namespace duo_test {

std::vector<candidate> language::after(std::span<const token_id> text, double agree, uint64_t accent, double second,
                                       int32_t n_left_out) const {
    uint64_t h = hash64(seed ^ (periodic ? 0 : (text.size() + size_t(n_left_out)) << 20));
    for (size_t i = text.size() - std::min<size_t>(periodic ? 1 : 3, text.size()); i < text.size(); ++i) {
        h = hash64(h ^ uint64_t(text[i]));
    }
    // A draft agrees where a hash of the same text says so; elsewhere none of its tokens is the target's first.
    const int32_t          shift = dice(h ^ accent ^ 77).chance(agree) ? 0 : n_choices;
    std::vector<candidate> out(n_choices);
    float                  logp = -0.05f;
    for (int32_t i = 0; i < n_choices; ++i) {
        out[size_t(i)] = {.token = token_id(1 + (h + uint64_t(i + shift)) % uint64_t(n_vocab - 1)), .logp = logp};
        logp -= 0.2f + float(hash64(h + uint64_t(i)) % 1000) * 1e-3f;
    }
    if (shift != 0 && dice(h ^ accent ^ 55).chance(second)) {
        out[1].token = token_id(1 + h % uint64_t(n_vocab - 1));
    }
    if (dice(h ^ 99).chance(p_end)) {
        out[shift == 0 ? 0 : 1].token = 0;
    }
    return out;
}

void language::choose(std::vector<candidate> & all, const sampling_params & s, std::span<const token_id> text) {
    if (s.ignore_eos) {
        std::erase_if(all, [](const candidate & c) { return c.token == 0; });
    }
    std::vector<std::pair<float, candidate>> ranked;
    for (candidate c : all) {
        if (s.penalised()) {
            const auto n = std::min(text.size(), size_t(std::max(0, s.repeat_last_n)));
            c.logp -= s.presence_penalty * float(std::count(text.end() - std::ptrdiff_t(n), text.end(), c.token) > 0);
        }
        ranked.emplace_back(
            s.greedy() ? c.logp : c.logp / s.temp + duo::gumbel_noise(s.seed, s.position_after(text.size()), c.token),
            c);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto & a, const auto & b) { return a.first > b.first; });
    // As a sampler tells it (llama/sampler.h): the chance that the other model chooses the same, given the noise.
    double sum = 0.0;
    for (const auto & r : ranked) {
        sum += std::exp(double(r.first));
    }
    for (size_t i = 0; i < ranked.size(); ++i) {
        all[i]      = ranked[i].second;
        all[i].logp = ranked[i].first - float(std::log(sum));
    }
}

std::string language::piece(token_id token) {
    static const std::string bytes[] = {"a", "b", "ab", "\xe2", "\x82", "\xac", "\xf0\x9f", "c", "", " a"};
    return bytes[size_t(token) % 10];
}

uint64_t hash_after(uint64_t before, token_id token) {
    return hash64(before ^ hash64(uint64_t(token) + 1));
}

void write_state(std::span<float> out, size_t n_text, uint64_t hash) {
    REQUIRE_EQ(out.size(), size_t(n_text_state));
    out[0] = float(n_text);
    for (size_t i = 1; i < out.size(); ++i, hash >>= 16) {
        out[i] = float(hash & 0xffff);
    }
}

uint64_t hash_in(const float * state) {
    uint64_t hash = 0;
    for (int32_t i = n_text_state - 1; i > 0; --i) {
        hash = hash << 16 | uint64_t(state[i]);
    }
    return hash;
}

uint64_t hash_of(std::span<const token_id> text) {
    uint64_t hash = 0;
    for (const token_id t : text) {
        hash = hash_after(hash, t);
    }
    return hash;
}

} // namespace duo_test
