// What was measured of a pair of models on its devices: times by width, and how often guesses are right. Kept for the
// life of the engine; duo tune saves it, so that a later run starts warm.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "request.h"

namespace duo {

constexpr int32_t n_rows_cap      = n_draft_cap + 8; // rows of a pass that are told apart
constexpr int32_t profile_version = 1;               // of saved(): another one means something else
constexpr int32_t n_step_cap      = 16;              // nodes of a draft step

// Average that trusts the smallest of its first samples (first passes of a shape pay for its set-up), and the smaller
// of an old value and a new one.
struct average {
    double  value  = 0.0;
    int32_t n      = 0;
    int64_t i_last = 0; // pass that was measured last

    void add(double x, int64_t i_pass);
};

// Right and wrong guesses, older ones counting less.
struct odds {
    double yes = 0.0;
    double no  = 0.0;

    void                 add(bool right, double memory);
    [[nodiscard]] double share(double prior, double weight) const {
        return (yes + weight * prior) / (yes + no + weight);
    }
};

// Owned by the verify worker.
class pair_profile {
  public:
    // A target pass over n_rows, no prompt among them; `shared`: part of it in which the draft worked too, 0..1.
    void on_pass(int32_t n_rows, int64_t us, double shared);
    void on_step(int32_t n_rows, float us); // a draft step
    // The best guess at level i (0: below the root), the ones above it right. fresh: the root was no guess itself.
    void on_guess(int32_t i, bool right, bool fresh);
    // Any child of an accepted node: was it the one, given the chance that the draft saw for it?
    void on_child(float logp, bool right);
    void on_ngram(int32_t i, bool right); // i-th token of an n-gram's continuation, the ones before it right

    [[nodiscard]] double acceptance(int32_t i) const; // a_i, 0..1: of the best guess at level i
    [[nodiscard]] double acceptance_fresh() const;    // a_0 where the draft had not foreseen the root
    [[nodiscard]] double chance(float logp) const;    // what the draft's own estimate is worth, 0..1
    [[nodiscard]] double ngram_chance(int32_t i) const;

    // Expected microseconds of a pass; 0: nothing measured yet. beside: while the draft works. hopeful: a small width
    // that was not met this way is taken for cheap, so that it is tried.
    [[nodiscard]] double pass_us(int32_t n_rows, bool beside, bool hopeful = true) const;
    [[nodiscard]] double step_us(int32_t n_rows = 1) const;
    // What one node more adds to a draft step, as a share of a step over one.
    [[nodiscard]] double branch_price() const;
    // Passes beside a working draft against passes alone: 1 on devices of their own.
    [[nodiscard]] double slowdown() const;

    [[nodiscard]] const average & alone(int32_t n_rows) const { return alone_[size_t(n_rows)]; }
    [[nodiscard]] int64_t         n_passes() const { return n_passes_; }
    // As measured, alone if there was such a pass; unlike pass_us() not made to grow with the width.
    [[nodiscard]] double measured_us(int32_t n_rows) const {
        return (alone(n_rows).n > 0 ? alone(n_rows) : beside_[size_t(n_rows)]).value;
    }
    [[nodiscard]] bool measured_beside(int32_t n_rows) const { return beside_[size_t(n_rows)].n > 0; }
    [[nodiscard]] bool measured(int32_t n_rows) const { return alone(n_rows).n > 0 || measured_beside(n_rows); }
    [[nodiscard]] bool measured_step(int32_t n_rows) const { return step_[size_t(n_rows)].n > 0; }
    // The most drafted tokens that a measured pass had.
    [[nodiscard]] int32_t n_tried() const;

    // All of it as numbers, for a file; restore() takes what saved() gave, or ignores what has another length.
    [[nodiscard]] std::vector<double> saved() const;
    void                              restore(const std::vector<double> & numbers);

  private:
    static constexpr int32_t n_bins = 25; // of a guess's own log-odds, from -6 to 6

    using table = std::array<average, n_rows_cap + 1>; // by rows
    [[nodiscard]] bool   counts(const average & a) const;
    [[nodiscard]] double interpolate(const table & t, int32_t n_rows) const;
    static int32_t       bin(float logp);

    table                               alone_{};
    table                               beside_{};
    std::array<average, n_step_cap + 1> step_{};
    std::array<odds, n_draft_cap>       level_{};
    std::array<odds, n_draft_cap>       ngram_{};
    std::array<odds, n_bins>            bin_{};
    odds                                fresh_{};
    int64_t                             n_passes_ = 0;
};

} // namespace duo
