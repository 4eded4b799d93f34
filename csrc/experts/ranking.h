// Experts in the order of numbers that speak for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace duo {

// Those with more than 0, largest first, at most n.
inline void rank_experts(std::span<const float> scores, size_t n, std::vector<int32_t> & out) {
    out.clear();
    for (size_t i = 0; i < scores.size(); ++i) {
        if (scores[i] > 0.0f) {
            out.push_back(int32_t(i));
        }
    }
    const auto before = [scores](int32_t a, int32_t b) {
        const float x = scores[size_t(a)];
        const float y = scores[size_t(b)];
        return x != y ? x > y : a < b;
    };
    n = std::min(n, out.size());
    std::ranges::partial_sort(out, out.begin() + std::ptrdiff_t(n), before);
    out.resize(n);
}

} // namespace duo
