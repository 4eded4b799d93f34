// Which of a row's logits the filters may keep. What is below need not be sorted, and most of it not be looked at.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "text/sampling.h"

namespace duo {

struct kept_bound {
    static constexpr float no_floor = -std::numeric_limits<float>::infinity();
    // Target and draft filter their own logits, so a draft races tokens, too, that only its own filters would drop: so
    // many of the best.
    static constexpr size_t n_raced = 64;

    size_t n_most   = 0;        // top-k; without it, the vocabulary
    size_t n_least  = 0;        // so many of the best are within it, however low they are, and however low n_most is
    float  floor    = no_floor; // what is lower is not kept
    bool   whole    = true;     // false: filters that drop nothing within it may keep more than is within it
    bool   in_order = true;     // false: there is no filter that looks at the order

    // best: the row's largest logit. reach: top-n-sigma's, how far below it. xtc: whether XTC applies. races: a
    // draft's.
    [[nodiscard]] static kept_bound of(const sampling_params & s, size_t n_vocab, float best, double reach, bool xtc,
                                       bool races);

    [[nodiscard]] kept_bound without_floor() const { return {.n_most = n_most, .n_least = n_least}; }
    // What is looked at without a floor.
    [[nodiscard]] size_t n_all() const { return std::max(n_most, n_least); }
};

} // namespace duo
