// Options of a pair of synthetic models: how often the draft is right, and how long a pass takes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace duo {

// The splitmix64 finaliser (Steele et al. 2014), and a draw from [0, 1).
inline uint64_t synthetic_hash(uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

inline double synthetic_uniform(uint64_t hash) noexcept {
    return double(hash >> 11) * 0x1.0p-53;
}

// How often the draft is right, by position of the token that it guesses.
//
// The target's token is the draft's first candidate with chance a, its second with (1 - a) b, its third with
// (1 - a)(1 - b) b, and so on to the last of n_ranks; else it is not among them. Below a = b / (1 + b) the first is not
// the likeliest any more.
struct agreement {
    static constexpr int32_t n_ranks = 8;
    static constexpr int32_t n_run   = 8; // positions that are easy or hard together

    std::vector<double> a{0.8};
    // The text is cut into stretches of this many tokens that take the values of `a` in turn; 0: 32.
    int32_t n_stretch = 0;
    // 0..1: how much neighbouring positions are alike. A share a of the runs is easy, with a + burst (1 - a); the
    // others are hard, with a (1 - burst), so the mean stays a. At 1 the draft is always right in the easy ones and
    // never in the hard ones.
    double burst     = 0.0;
    double b         = 0.45;
    bool   confident = false; // candidates carry the chances of their position; false: those of the mean a
    double says      = 0.0;   // candidates carry the chances of this a, right or wrong; 0: of the true one

    [[nodiscard]] double  mean() const;
    [[nodiscard]] double  at(int32_t pos, uint64_t seed) const;         // a at that position
    [[nodiscard]] double  chance(int32_t rank, double a_here) const;    // that the target's token has this rank, from 0
    [[nodiscard]] int32_t rank_of(double uniform, double a_here) const; // the one that a draw from [0, 1) has
};

// How long a pass takes.
struct pass_cost {
    double pass_us = 0.0; // v(n) = 1
    // Points (n, v(n)), n ascending: linear between them, level before the first, on along the last slope. None: 1.
    std::vector<std::pair<int32_t, double>> v;

    [[nodiscard]] int64_t us(int32_t n_rows) const;
};

struct synthetic_options {
    double                                  pass_us = 20000.0; // a target pass over one row
    std::vector<std::pair<int32_t, double>> v{{1, 1.0}, {2, 1.02}};
    double                                  c           = 0.2;  // draft step / target pass
    double                                  branch_cost = 0.02; // step over B rows: c (1 + branch_cost (B - 1))
    agreement                               agree{};
    int32_t                                 n_vocab   = 32000;
    int32_t                                 n_ctx     = 8192; // of all texts together
    int32_t                                 n_texts   = 1;    // at once
    uint64_t                                seed      = 1;
    bool                                    tracing   = false;
    bool                                    has_draft = true;

    // Throws duo::error if they make no sense.
    void check() const;

    [[nodiscard]] pass_cost target_cost() const { return {.pass_us = pass_us, .v = v}; }
    [[nodiscard]] pass_cost draft_cost() const {
        return {.pass_us = c * pass_us, .v = {{1, 1.0}, {2, 1.0 + branch_cost}}};
    }
};

} // namespace duo
