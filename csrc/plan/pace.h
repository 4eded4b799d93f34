// How fast passes were. Older passes count less.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace duo {

struct pace {
    static constexpr int32_t n_first = 3;

    int32_t n        = 0; // passes
    double  tokens   = 0.0;
    double  squares  = 0.0; // of the tokens of each pass
    double  expected = 0.0; // tokens, by the planner
    double  weight   = 0.0; // of the passes in these sums
    double  usual_us = 0.0; // their time without the delays of single late passes

    // Tokens per microsecond, without single late passes; 0: nothing measured. Few passes may be unlucky, so what was
    // expected counts, as far as the passes do not contradict it: up to two standard errors above what they wrote.
    [[nodiscard]] double rate() const {
        if (usual_us <= 0.0) {
            return 0.0;
        }
        const double mean   = tokens / weight;
        const double spread = std::sqrt(std::max(1.0, squares / weight - mean * mean)); // of a pass; few show none
        return std::max(tokens, std::min(expected, tokens + 2.0 * spread * std::sqrt(weight))) / usual_us;
    }

    void add(int32_t n_tokens, double n_expected, double us) {
        constexpr double memory = 0.98; // weight of a pass fades by this with each later one
        // The first pass may be a late one.
        const double mean = n == 0 ? us : n < n_first ? std::min(us, usual_us / weight) : usual_us / weight;
        usual_us          = (n < n_first ? mean * weight : usual_us) * memory + std::min(us, 1.25 * mean);
        weight            = weight * memory + 1.0;
        tokens            = tokens * memory + n_tokens;
        squares           = squares * memory + double(n_tokens) * n_tokens;
        expected          = expected * memory + n_expected;
        ++n;
    }
};

} // namespace duo
