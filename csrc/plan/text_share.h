// One text's part in the next pass, and what its options are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "pass_tree.h"
#include "text/request.h"
#include "tree/tree_shape.h"

namespace duo {

constexpr int32_t n_auto_max = 16; // most guesses of a text in a pass with --draft auto

struct text_share {
    pass_tree *         tree  = nullptr; // nullptr: only rows of its prompt
    const plan_params * plan  = nullptr;
    const tree_shape *  shape = nullptr; // that the user gave; may be empty

    int32_t n_most     = 0;           // drafted nodes at most, as far as options, context and batch allow
    int32_t n_base     = 1;           // its rows besides drafted ones
    int32_t n_branch   = 1;           // branches of the cache for its tree
    int32_t n_told     = n_draft_cap; // levels that its draft was told to prepare
    bool    growing    = false;       // its draft may still add nodes, and may be waited for
    bool    fresh      = false;       // the draft had not foreseen the root
    bool    fixed      = false;       // its rows are what the user or a test has fixed, whatever they cost
    int64_t reading_us = 0;           // a draft that reads is expected to take so much longer; 0: it does not read
    int64_t away_us    = 0; // a verdict and the first node after it take this much longer: the draft is elsewhere

    // Chances of what n-grams of the text propose: that its first tokens are right, up to each one.
    std::span<const double> repeats = {};

    double expected = 1.0; // out: tokens that the text will probably grow by
};

// The user or a test has fixed what is verified, so costs are not compared. alone: no other text shares the passes.
// With others, the length of turn-taking is only a bound.
[[nodiscard]] inline bool is_fixed(const plan_params & p, bool alone = true) {
    return p.always || !p.tree.empty() || p.use == tree_use::dynamic ||
           (alone && p.n_max != n_draft_auto && p.mode == run_mode::sync);
}

// Drafted tokens in a pass that a text's options allow.
[[nodiscard]] inline int32_t n_drafted_most(const plan_params & p, const tree_shape & shape) {
    const int32_t n = p.mode == run_mode::plain ? 0
                      : !shape.empty()          ? shape.n_nodes()
                      : p.n_max == n_draft_auto ? n_auto_max
                                                : p.n_max;
    return std::clamp(n, 0, n_draft_cap);
}

} // namespace duo
