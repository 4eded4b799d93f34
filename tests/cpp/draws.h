// Distributions over few tokens, what was drawn from them, and whether that fits.
#pragma once

#include <cmath>
#include <map>
#include <vector>

#include "markov.h"

namespace duo_test {

inline std::vector<candidate> dist(const std::vector<double> & p) {
    std::vector<candidate> out;
    for (size_t i = 0; i < p.size(); ++i) {
        if (p[i] > 0.0) {
            out.push_back({.token = token_id(i), .logp = float(std::log(p[i]))});
        }
    }
    std::stable_sort(out.begin(), out.end(), [](const auto & a, const auto & b) { return a.logp > b.logp; });
    return out;
}

struct drawn {
    std::map<token_id, int64_t> counts;
    int64_t                     n         = 0;
    int64_t                     n_first   = 0; // the first guess was taken
    int64_t                     n_guessed = 0; // any of them was
};

inline double deviation(const drawn & d, const std::vector<double> & p) {
    fit f;
    for (size_t i = 0; i < p.size(); ++i) {
        const auto at = d.counts.find(token_id(i));
        REQUIRE(at == d.counts.end() || p[i] > 0.0, "only tokens of the target's distribution");
        if (p[i] > 0.0) {
            f.add(at == d.counts.end() ? 0.0 : double(at->second), double(d.n) * p[i]);
        }
    }
    return f.deviation();
}

} // namespace duo_test
