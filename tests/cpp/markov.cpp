#include "markov.h"

namespace duo_test {

std::vector<candidate> markov::after(std::span<const token_id> text) const {
    const uint64_t place = hash64(uint64_t(text.back()) * 64 + uint64_t(text.size() < 2 ? 0 : text[text.size() - 2]));
    const auto     of    = [&](uint64_t accent) {
        std::vector<double> p;
        double              sum = 0.0;
        for (int32_t t = 1; t <= n_tokens; ++t) {
            const double u = double(hash64(place ^ accent ^ uint64_t(t) << 20) >> 11) * 0x1.0p-53;
            sum += p.emplace_back(u * u * u + 0.002);
        }
        for (double & x : p) {
            x /= sum;
        }
        return p;
    };
    const auto             plain = of(0);
    const auto             own   = of(accent);
    std::vector<candidate> out;
    for (int32_t t = 1; t <= n_tokens; ++t) {
        const size_t i = size_t(t - 1);
        out.push_back({.token = t, .logp = float(std::log(blend * plain[i] + (1.0 - blend) * own[i]))});
    }
    std::stable_sort(out.begin(), out.end(), [](const auto & a, const auto & b) { return a.logp > b.logp; });
    return out;
}

int32_t markov_model::candidates(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                                 std::span<candidate> out) {
    candidate unused;
    scripted_model::candidates(i_row, s, text, std::span(&unused, 1)); // checks what is asked
    std::vector<std::pair<float, token_id>> ranked;
    for (const candidate & c : markov_.after(text)) {
        ranked.emplace_back(c.logp + duo::gumbel_noise(s.seed, text.size(), c.token), c.token);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto & a, const auto & b) { return a.first > b.first; });
    const size_t n = std::min(out.size(), ranked.size());
    for (size_t i = 0; i < n; ++i) {
        out[i] = {.token = ranked[i].second, .logp = float(std::log(i == 0 ? 0.6 : 0.1))};
    }
    return int32_t(n);
}

void markov_model::chances(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                           std::vector<candidate> & out) {
    candidate unused;
    scripted_model::candidates(i_row, s, text, std::span(&unused, 1));
    out = markov_.after(text);
}

void fit::add(double observed, double expected) {
    if (expected >= 5.0) {
        chi2_ += (observed - expected) * (observed - expected) / expected;
        ++n_cells_;
    } else { // small cells together
        few_observed_ += observed;
        few_expected_ += expected;
    }
}

double fit::deviation(int32_t n_rules) const {
    double chi2 = chi2_;
    double df   = double(n_cells_ - n_rules);
    if (few_expected_ >= 5.0) {
        chi2 += (few_observed_ - few_expected_) * (few_observed_ - few_expected_) / few_expected_;
        df += 1.0;
    }
    REQUIRE(df > 0.0);
    return (chi2 - df) / std::sqrt(2.0 * df);
}

void transitions::add(std::span<const token_id> text, size_t n_prompt) {
    for (size_t i = n_prompt; i < text.size(); ++i) {
        ++counts_[{text[i - 2], text[i - 1]}][text[i]];
        ++n_;
    }
}

double transitions::deviation(const markov & m) const {
    fit     f;
    int32_t n_rules = 0;
    for (const auto & [pair, next] : counts_) {
        double n = 0.0;
        for (const auto & [token, count] : next) {
            n += double(count);
        }
        const std::vector<token_id> text{pair.first, pair.second};
        for (const candidate & c : m.after(text)) {
            const auto at = next.find(c.token);
            f.add(at == next.end() ? 0.0 : double(at->second), n * std::exp(double(c.logp)));
        }
        ++n_rules;
    }
    return f.deviation(n_rules);
}

} // namespace duo_test
